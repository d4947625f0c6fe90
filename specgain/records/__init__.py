"""Records of real rounds, whoever wrote them.

The modules, and what each holds:

    roundlog        one schema for rounds measured by this package
    read            which kind of file is this? → the runs it records, one `Record` each
    summary         `Record`: what one run says in counts; `summary`: the contract of `specgain read`
    vllm, vllm_results, sglang, llamacpp, tensorrt_llm, mlc, openvino, mlx, aiperf, lmstudio, instrumented, sweep
                    one reader per engine: its layouts, its definitions and where they were read
    scrape          /metrics of vLLM, SGLang and llama.cpp, differenced
    source, text    files opened with care; printed numbers with their units and their rounding
"""
