"""The lab's loop against transformers on the same weights: plain, with a draft model, with prompt lookup. One machine idle.

    python -m benchmarks.peers [--prompts 4] [--tokens 96] [--gammas 2 4 8] [--threads 2]

Writes benchmarks/results/peers.json. Same prompts, γ, threads and greedy texts; the arms take turns, in rotating order.
Decode only: the time to `tokens` tokens minus the time to two, per token between, so that prompts, set-up of the call
and first use of the draft's cache fall out on both sides. transformers is the extra `specgain[peers]`.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.__main__ import write

RESULTS = Path(__file__).parent / "results"
HEAD = 2  # tokens of the short run
BARS = {"draft model": 2.0, "prompt lookup": 2.0, "plain": 1.0}  # tokens per second, ours over theirs


def as_llama(model, context):
    """Return transformers' LlamaForCausalLM with the weights of one of our models (one that has no norms per head)."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, logging

    logging.set_verbosity_error()
    c = model.config
    config = LlamaConfig(
        vocab_size=c.vocab, hidden_size=c.width, intermediate_size=c.hidden, num_hidden_layers=c.layers,
        num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, head_dim=c.head_width, rms_norm_eps=c.norm_eps,
        max_position_embeddings=context, tie_word_embeddings=c.tied, bos_token_id=None, eos_token_id=None,
        pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": c.rope_base},
    )  # fmt: skip
    state = {"model.embed_tokens.weight": model.embed, "model.norm.weight": model.final_norm}
    state["lm_head.weight"] = model.head.weight
    for i, (norm1, qkv, out, norm2, gate_up, down, _) in enumerate(model.layers):
        sizes = [c.heads * c.head_width, c.kv_heads * c.head_width, c.kv_heads * c.head_width]
        parts = dict(
            zip(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), qkv.weight.split(sizes), strict=True)
        )
        parts |= dict(zip(("mlp.gate_proj", "mlp.up_proj"), gate_up.weight.chunk(2), strict=True))
        parts |= {"self_attn.o_proj": out.weight, "mlp.down_proj": down.weight}
        parts |= {"input_layernorm": norm1, "post_attention_layernorm": norm2}
        state |= {f"model.layers.{i}.{name}.weight": weight for name, weight in parts.items()}
    llama = LlamaForCausalLM(config).to(model.dtype).eval()
    with torch.no_grad():
        llama.load_state_dict({name: weight.clone() for name, weight in state.items()})
    return llama


def our_arms(pair, gammas, draft):
    """Return {(kind, γ): a function (prompt, tokens) that continues the prompt and returns the new tokens}."""
    from specgain.lab.drafts import Lookup
    from specgain.lab.loop import generate

    drafts = {"draft model": pair.drafts[draft], "prompt lookup": Lookup(pair.target.config.vocab, longest=3)}

    def arm(drafter, gamma):
        return lambda prompt, tokens: generate(pair.target, [prompt], tokens, drafter, gamma).outputs[0].tokens

    return {("plain", 0): arm(None, 0)} | {(kind, g): arm(d, g) for kind, d in drafts.items() for g in gammas}


def their_arms(pair, gammas, draft):
    """Return the same of transformers, told to propose γ every time."""
    import torch

    target = as_llama(pair.target, pair.target.config.context)
    assistant = as_llama(pair.drafts[draft].model, pair.target.config.context)
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = 0.0

    def arm(gamma=0, **options):
        @torch.inference_mode()
        def run(prompt, tokens):
            if gamma and "assistant_model" in options:
                assistant.generation_config.num_assistant_tokens = gamma
            ids = torch.tensor([prompt])
            out = target.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens,
                                  **options)  # fmt: skip
            return out[0, len(prompt) :].tolist()

        return run

    return {("plain", 0): arm()} | {
        (kind, g): arm(g, **options)
        for g in gammas
        for kind, options in {
            "draft model": {"assistant_model": assistant},
            "prompt lookup": {"prompt_lookup_num_tokens": g, "max_matching_ngram_size": 3},
        }.items()
    }


def seconds_per_token(run, prompt, tokens):
    """Return (seconds per token after the first two, the text)."""
    t0 = perf_counter()
    run(prompt, HEAD)
    t1 = perf_counter()
    text = run(prompt, tokens)
    return (perf_counter() - t1 - (t1 - t0)) / (tokens - HEAD), text


def compare(prompts=4, tokens=96, gammas=(2, 4, 8), draft="strong", domains=None, pair=None, progress=print):
    """Return the result, JSON-ready: ms per token and tokens per second by arm, ours over theirs, texts that differ."""
    import torch

    from specgain import lab

    pair = lab.load_pair([draft]) if pair is None else pair
    arms = {("ours", *key): run for key, run in our_arms(pair, gammas, draft).items()}
    arms |= {("transformers", *key): run for key, run in their_arms(pair, gammas, draft).items()}
    calibration, names = pair.prompts("calibration"), list(arms)
    jobs = [(d, i) for i in range(prompts) for d in (domains or calibration)]
    for run in arms.values():
        run(calibration[jobs[0][0]][0].tolist(), 16)
    seconds, different = {name: [] for name in names}, []
    for turn, (domain, i) in enumerate(jobs):
        prompt, shift, texts = calibration[domain][i].tolist(), turn % len(names), {}
        for name in names[shift:] + names[:shift]:
            each, texts[name] = seconds_per_token(arms[name], prompt, tokens)
            seconds[name].append(each)
        plain = texts["ours", "plain", 0]
        different += [
            {"domain": domain, "prompt": i, "arm": " ".join(map(str, n))} for n, t in texts.items() if t != plain
        ]
        progress(f"{turn + 1} of {len(jobs)} prompts")
    from importlib.metadata import version

    environment = lab.environment(pair) | {"transformers": version("transformers")}
    setup = {
        "prompts": len(jobs),
        "tokens": tokens,
        "gammas": list(gammas),
        "draft": draft,
        "threads": torch.get_num_threads(),
    }
    return {"environment": environment, "setup": setup, "rows": rows(seconds), "different_texts": different,
            "samples_ms_per_token": {" ".join(map(str, n)): [round(s * 1e3, 4) for s in v] for n, v in seconds.items()}}  # fmt: skip


def rows(seconds):
    """Return one row per (kind, γ): ms per token of both (totals over totals), their ratio with a 95 % interval, the bar."""
    from specgain import gain

    table = []
    for (who, kind, gamma), ours in seconds.items():
        if who == "ours":
            theirs = seconds["transformers", kind, gamma]
            pairs = np.array([theirs, ours]).T
            spread = (
                gain.bootstrap([pairs], lambda t: t[:, 0] / t[:, 1]) if len(pairs) > 1 else pairs[:, 0] / pairs[:, 1]
            )
            row = {
                "kind": kind,
                "gamma": gamma,
                "ours_ms": float(np.mean(ours) * 1e3),
                "transformers_ms": float(np.mean(theirs) * 1e3),
            }
            row |= {"ratio": float(pairs[:, 0].sum() / pairs[:, 1].sum())}
            row |= {"ratio_interval": [float(v) for v in np.quantile(spread, [0.025, 0.975])], "bar": BARS.get(kind)}
            table.append(row)
    return table


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=4, help="per domain")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--gammas", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS / "peers.json")
    chosen = parser.parse_args(arguments)
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        print(f"skipped: {' and '.join(missing)} missing; `pip install specgain[lab,peers]` brings both")
        return None
    import torch

    torch.set_num_threads(chosen.threads)
    result = compare(chosen.prompts, chosen.tokens, chosen.gammas)
    write(chosen.out, result)
    for row in result["rows"]:
        bar = "" if row["bar"] is None else f", bar {row['bar']}"
        print(
            "{kind:14} γ={gamma}: ours {ours_ms:.2f} ms a token, transformers {transformers_ms:.2f}: {ratio:.2f}".format(
                **row
            )
            + bar
        )
    print(f"{len(result['different_texts'])} texts differ from ours, plain")
    return result


if __name__ == "__main__":
    main()
