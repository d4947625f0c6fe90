"""Draft-length schedules by batch size: check them before the engine does, derive them from measurements, emit them.

vLLM's `num_speculative_tokens_per_batch_size` is a list of [first batch size, last batch size, draft length]. The
engine looks at it twice: types when the configuration is read (stage `config`), the rules about 50 s later when the
scheduler is built (stage `lookup`). What it accepts it also bends: gaps take the length before them, the last length
goes on to max_num_seqs, lengths above num_speculative_tokens are cut to it. "Batch size" is the number of requests
scheduled in a step, prefills included.

Sources: vllm/config/speculative.py and vllm/v1/spec_decode/dynamic/utils.py of 0.32.0 and 0.33.0 (the rules are the
same in both), the documentation page Dynamic Speculative Decoding, vllm-project/vllm#49548 and #51510.
"""

import re
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from specgain.records.source import RecordError, Source, Warn, parse_json, shown

KEY = "num_speculative_tokens_per_batch_size"
MTP = (
    "deepseek dots3_note mimo mimo_v2 glm4_moe glm4_moe_lite glm_ocr ernie nemotron_h exaone_moe exaone4_5 qwen3_next "
    "qwen4_exp qwen3_5 longcat_flash bailing_hybrid_v3 minimax_m3 bailing_hybrid kimi_k3 pangu_ultra_moe step3p5 hy_v3 "
    "hy_v4 gemma4 inkling glm5_next"
).split()
METHODS = frozenset(
    "ngram medusa mlp_speculator draft_model suffix custom_class eagle eagle3 extract_hidden_states mtp dflash "
    "ngram_gpu dspark".split()
) | {f"{name}_mtp" for name in MTP}
KEYS = frozenset(
    "method model num_speculative_tokens draft_tensor_parallel_size max_model_len quantization moe_backend "
    "attention_backend kv_cache_dtype revision code_revision enforce_eager draft_load_config parallel_drafting "
    "disable_padded_drafter_batch disable_eagle_block_drop use_local_argmax_reduction use_heterogeneous_vocab "
    "prompt_lookup_max prompt_lookup_min suffix_decoding_max_tree_depth suffix_decoding_max_cached_requests "
    "suffix_decoding_max_spec_factor suffix_decoding_min_token_prob rejection_sample_method synthetic_acceptance_rates "
    "synthetic_acceptance_length draft_sample_method enable_adaptive_verification dspark_draft_topk "
    "index_share_for_mtp_iteration tensor_parallel_size".split()
) | {KEY}


@dataclass(frozen=True)
class Release:
    """What a vLLM release does with a speculative configuration, as far as a schedule depends on it."""

    version: str
    methods: frozenset
    keys: frozenset
    samplers: frozenset  # rejection_sample_method
    v1_drops: bool  # runner V1 drops the schedule for methods it does not list, instead of failing later
    full_width: frozenset  # methods that draft the full width on runner V2 whatever the schedule says


RELEASES = {
    "0.32.0": Release(
        "0.32.0", METHODS, KEYS, frozenset(("standard", "synthetic", "block")), False,
        frozenset(("draft_model", "ngram", "dflash")),
    ),
    "0.33.0": Release(
        "0.33.0",
        METHODS - {"medusa", "mlp_speculator"},
        KEYS | {"draft_lm_head_quantization", "disable_lookahead_block_hashes", "xpress_topc", "fly_window_size",
                "fly_entropy_threshold", "fly_entropy_top_k"},
        frozenset(("standard", "synthetic", "block", "fly")), True,
        frozenset(("draft_model", "ngram")),
    ),
}  # fmt: skip
V1_ONLY = frozenset(("suffix", "medusa", "mlp_speculator", "custom_class"))  # methods that always run on runner V1
V1_SCHEDULES = frozenset(("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"))
V1_ASSERTS = frozenset(("suffix", "ngram_gpu", "medusa", "extract_hidden_states"))  # 0.32.0: fail at a lowered length
NO_CACHE = frozenset(("ngram", "ngram_gpu", "suffix"))  # drafters without a cache of their own


def release(engine):
    """Return the Release of a text such as "vllm==0.32.0" or "0.33"; raises RecordError for one that is not known."""
    match = re.fullmatch(r"(?:vllm(?:-cpu)?\s*==?\s*)?v?(\d+\.\d+)(?:\.(\d+))?(?:\+\w+)?", engine.strip())
    version = f"{match[1]}.{match[2] or 0}" if match else None
    if version not in RELEASES:
        known = " and ".join(f"vllm=={v}" for v in RELEASES)
        raise RecordError(f"engine = {engine!r} is not known here; known are {known}")
    return RELEASES[version]


@dataclass
class Check:
    """The outcome of a check: errors that make the engine refuse, warnings of what it does otherwise than written.

    `stage` decides: "config" or "lookup" for a refusal, "none" if the engine takes it. `effective` are the ranges
    [first, last, draft length] that the engine will use, None after a refusal.
    """

    errors: list = field(default_factory=list)
    warnings: list = field(default_factory=list)
    stage: str = "none"
    effective: list | None = None
    engine: str = ""

    @property
    def ok(self):
        return not self.errors

    def to_json(self):
        """Return the contract dict of `specgain schedule check`."""
        return {
            "ok": self.ok,
            "stage": self.stage,
            "errors": [error.to_json() for error in self.errors],
            "warnings": [warning.to_json() for warning in self.warnings],
            "effective": self.effective,
            "engine": self.engine,
        }


# ---------------------------------------------------------------------------------------------------- config stage


def lax_int(value):
    """Return (int, None) for what the engine's types take as an integer, else (None, error code).

    2.0, "3" and "3.0" are taken, 2.9 is not; the codes are pydantic's.
    """
    if isinstance(value, (bool, int)):
        return int(value), None
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return None, "finite_number"
        if abs(value) >= 2.0**63:
            return None, "int_parsing_size"
        return (int(value), None) if value == int(value) else (None, "int_from_float")
    if isinstance(value, str):
        match = re.fullmatch(r"([+-]?\d+(?:_\d+)*)(?:\.0+)?", value.strip(), re.ASCII)
        return (int(match[1].replace("_", "")), None) if match and len(value) < 4300 else (None, "int_parsing")
    return None, "int_type"


def config_rows(table):
    """Return (rows of three ints, errors) as the engine's types read a schedule: a list of rows of three integers."""
    if not isinstance(table, (list, tuple)):
        return None, [Warn("list_type", f"the schedule is {_kind(table)}, not a list of [first, last, draft length]")]
    rows, errors = [], []
    for number, row in enumerate(table):
        if not isinstance(row, (list, tuple)):
            errors.append(Warn("tuple_type", f"row {number} is {_kind(row)}, not [first, last, draft length]"))
            continue
        if len(row) != 3:
            code = "missing" if len(row) < 3 else "too_long"
            errors.append(Warn(code, f"row {number} has {len(row)} items; it needs first, last and draft length"))
        if len(row) > 3:
            continue
        pairs = [lax_int(value) for value in row]
        for place, (value, (_, code)) in enumerate(zip(row, pairs, strict=False)):
            if code:
                errors.append(Warn(code, f"row {number}, item {place}: {shown(value)} is not a whole number"))
        rows.append([value for value, _ in pairs])
    return (None, errors) if errors else (rows, [])


def _kind(value):
    names = {str: "a text", dict: "an object", type(None): "null", bool: "true or false"}
    return names.get(type(value), "a number")


def config_errors(config, rel, runner=None):
    """Return the errors that reading a whole speculative configuration would raise: all, not only the first."""
    errors = []

    def refuse(code, text):
        errors.append(Warn(code, text))

    for key in sorted(set(config) - rel.keys):
        refuse("unknown_key", f"{shown(key)} is no key of vLLM {rel.version}'s speculative configuration")
    if "tensor_parallel_size" in config:
        refuse("tensor_parallel_size", "tensor_parallel_size is refused here; the key is draft_tensor_parallel_size")
    method = config.get("method")
    if method is not None and method not in rel.methods:
        gone = method in METHODS
        refuse("method", f"method {shown(method)} {'was removed from' if gone else 'is unknown to'} vLLM {rel.version}")
    _check_gamma(config, refuse)
    _check_lookup(config, refuse)
    _check_sampler(config, rel, refuse)
    if config.get("enable_adaptive_verification") and (runner == "V1" or method in V1_ONLY):
        refuse("runner", "adaptive verification needs runner V2; runner V1 does not support it")
    return errors


def _check_gamma(config, refuse):
    """Check num_speculative_tokens: required but for methods that fill it in, and above 0."""
    value, method = config.get("num_speculative_tokens"), config.get("method")
    if value is None:
        fills_in = method is None or method in ("suffix", "dspark") or method.endswith("mtp")
        if not fills_in or (method is None and not config.get("model")):
            refuse("num_speculative_tokens", "num_speculative_tokens is required; a schedule does not replace it")
        return
    gamma, code = lax_int(value)
    if code or gamma <= 0:
        refuse("num_speculative_tokens", f"num_speculative_tokens = {shown(value)}; it must be a whole number above 0")


def _check_lookup(config, refuse):
    low, high = (config.get(f"prompt_lookup_{end}") for end in ("min", "max"))
    for name, value in (("min", low), ("max", high)):
        if value is not None and (lax_int(value)[1] or lax_int(value)[0] < 1):
            refuse("prompt_lookup", f"prompt_lookup_{name} = {shown(value)}; it must be 1 or more")
            return
    if None not in (low, high) and lax_int(low)[0] > lax_int(high)[0]:
        refuse("prompt_lookup", f"prompt_lookup_min = {low} must not exceed prompt_lookup_max = {high}")


def _check_sampler(config, rel, refuse):
    sampler = config.get("rejection_sample_method", "standard")
    if sampler not in rel.samplers:
        refuse("rejection_sample_method", f"{shown(sampler)} is none of {', '.join(sorted(rel.samplers))}")
    if config.get("draft_sample_method", "greedy") not in ("greedy", "probabilistic"):
        refuse("draft_sample_method", f"{shown(config['draft_sample_method'])} is neither greedy nor probabilistic")
    given = [k for k in ("synthetic_acceptance_rates", "synthetic_acceptance_length") if config.get(k) is not None]
    if sampler == "synthetic" and len(given) != 1:
        refuse("synthetic", "synthetic sampling needs just one of synthetic_acceptance_rates and …_length")
    if sampler != "synthetic" and given:
        refuse("synthetic", f"{given[0]} is for rejection_sample_method synthetic only")
    rates = config.get("synthetic_acceptance_rates")
    if sampler == "synthetic" and isinstance(rates, list):
        _check_rates(rates, config.get("num_speculative_tokens"), refuse)


def _check_rates(rates, gamma, refuse):
    if not all(isinstance(r, (int, float)) and 0 <= r <= 1 for r in rates):
        refuse("synthetic", f"synthetic_acceptance_rates = {shown(rates)} must lie in 0 to 1")
    elif any(later > earlier for earlier, later in pairwise(rates)):
        refuse("synthetic", f"synthetic_acceptance_rates = {rates} must not rise: they are survival probabilities")
    elif gamma is not None and lax_int(gamma)[0] != len(rates):
        refuse("synthetic", f"{len(rates)} synthetic_acceptance_rates for num_speculative_tokens = {gamma}")


# ---------------------------------------------------------------------------------------------------- lookup stage


def lookup_errors(rows):
    """Return the errors of the engine's rules for rows of three ints, in its order: the first is what it says."""
    errors = []
    for first, last, gamma in rows:
        if first < 1 or last < 1:
            errors.append(Warn("not_positive", f"[{first}, {last}, {gamma}]: batch sizes start at 1"))
        elif first > last:
            errors.append(Warn("start_gt_end", f"[{first}, {last}, {gamma}]: the first size exceeds the last"))
        elif gamma < 0:
            errors.append(Warn("negative", f"[{first}, {last}, {gamma}]: a draft length is 0 or more"))
    if errors or not rows:
        return errors
    ordered = sorted(rows)
    for (a, b, k), (c, d, m) in pairwise(ordered):
        if c <= b:
            errors.append(Warn("overlap", f"[{a}, {b}, {k}] and [{c}, {d}, {m}] overlap"))
    if ordered[0][0] != 1:
        errors.append(
            Warn("first_start", f"the first range starts at {ordered[0][0]}; every batch size from 1 on needs one")
        )
    return errors


def effective(rows, max_num_seqs, gamma):
    """Return the ranges the engine will use for valid rows: gaps and the tail carry the length before them, lengths are
    cut to `gamma` (num_speculative_tokens), sizes to `max_num_seqs`; neighbours of equal length are one range.
    """
    ordered, lengths = sorted(rows), []
    for number, (first, _, k) in enumerate(ordered):
        end = ordered[number + 1][0] - 1 if number + 1 < len(ordered) else max_num_seqs
        if first <= max_num_seqs:
            lengths.append([first, min(end, max_num_seqs), min(k, gamma)])
    merged = [list(run) for _, run in groupby(lengths, key=lambda entry: entry[2])]
    return [[run[0][0], run[-1][1], run[0][2]] for run in merged]


def lookup(table, max_num_seqs, gamma):
    """Return what the engine's own function makes of a schedule when it is called directly: `effective` ranges.

    Raises RecordError with the engine's first error. Unlike the whole start, this stage turns 2.9 into 2 and refuses
    an empty list.
    """
    if isinstance(table, (str, bytes)) or not isinstance(table, (list, tuple)):
        raise RecordError("list_type: the schedule must be a non-empty list of [first, last, draft length]")
    if not table:
        raise RecordError("empty: the schedule must not be empty")
    rows = []
    for row in table:
        if isinstance(row, (str, bytes)) or not isinstance(row, (list, tuple)) or len(row) != 3:
            raise RecordError("missing: each row needs three items: first, last, draft length")
        try:
            rows.append([int(value) for value in row])
        except (TypeError, ValueError, OverflowError):
            raise RecordError(f"int_parsing: {shown(row)} holds something that is not a number") from None
    for error in lookup_errors(rows):
        raise RecordError(f"{error.code}: {error[1]}")
    return effective(rows, max_num_seqs, gamma)


# ----------------------------------------------------------------------------------------------------------- check


def check(
    config,
    max_num_seqs=None,
    num_speculative_tokens=None,
    engine="vllm==0.32.0",
    method=None,
    runner=None,
    data_parallel_size=1,
    lora=False,
    max_num_batched_tokens=None,
):
    """Return the `Check` of a schedule (a table) or a whole speculative configuration (an object) against a release.

    Arguments override what the configuration says. Raises RecordError for arguments that make no sense themselves.
    """
    rel = release(engine)
    if max_num_seqs is not None and max_num_seqs < 1:
        raise RecordError(f"max_num_seqs = {max_num_seqs} must be 1 or more")
    if runner not in (None, "V1", "V2"):
        raise RecordError(f"runner = {runner!r} is not known; known are V1 and V2")
    out = Check(engine=f"vllm=={rel.version}")
    config, table = _settings(config, method, num_speculative_tokens)
    gamma = _argument(config.get("num_speculative_tokens"))
    out.errors = config_errors(config, rel, runner) if len(config) > 1 or "method" in config else []
    rows, errors = config_rows(table) if table is not None else ([], [])
    out.errors += errors
    if lora and None not in (max_num_batched_tokens, max_num_seqs, gamma):
        _check_lora(out, max_num_batched_tokens, max_num_seqs, gamma)
    if out.errors:
        out.stage = "config"
        return out
    out.errors = lookup_errors(rows)
    if out.errors:
        out.stage = "lookup"
        return out
    _apply(out, rows, table, config, rel, max_num_seqs, gamma, runner, data_parallel_size)
    return out


def _settings(config, method, gamma):
    """Return (configuration with the arguments put in, its schedule or None)."""
    if isinstance(config, dict):
        renamed = {str(key).replace("-", "_"): value for key, value in config.items()}
        config = renamed if renamed.keys() & KEYS else {KEY: config}
    else:
        config = {KEY: config}
    if method is not None:
        config["method"] = method
    if gamma is not None:
        config["num_speculative_tokens"] = gamma
    return config, config.get(KEY)


def _argument(value):
    gamma, code = lax_int(value) if value is not None else (None, None)
    return None if code else gamma


def _check_lora(out, budget, max_num_seqs, gamma):
    if budget < max_num_seqs * (gamma + 1):
        out.errors.append(
            Warn(
                "lora_budget",
                f"with LoRA, max_num_batched_tokens = {budget} must be at least max_num_seqs·(γ + 1) = "
                f"{max_num_seqs * (gamma + 1)}",
            )
        )


def _apply(out, rows, table, config, rel, max_num_seqs, gamma, runner, data_parallel_size):
    """Fill `effective` and the warnings of a schedule that the engine accepts."""
    method = config.get("method")
    runner = "V1" if method in V1_ONLY else runner
    if max_num_seqs is None:
        max_num_seqs = max((last for _, last, _ in rows), default=1)
        _note(out, "max-num-seqs-unknown", "give --max-num-seqs: the last draft length goes on up to it")
    if gamma is None:
        gamma = max((k for *_, k in rows), default=0)
        if rows:
            _note(out, "num-speculative-tokens-unknown", "give --num-speculative-tokens: longer drafts are cut to it")
    static = [[1, max_num_seqs, gamma]]
    if not rows:
        out.effective = static
        if table is not None:
            _note(
                out, "ignored",
                "an empty schedule is ignored: the draft length stays num_speculative_tokens (runner V2's graph "
                "capture may still fail on it: leave the key out)",
            )  # fmt: skip
        return
    out.effective = effective(rows, max_num_seqs, gamma)
    _bent(out, rows, max_num_seqs, gamma)
    if data_parallel_size > 1:
        out.effective = static
        _note(
            out,
            "data-parallel",
            f"with data_parallel_size = {data_parallel_size} the schedule is dropped: always {gamma}",
        )
        return
    _method(out, static, method, runner, rel, gamma)


def _note(out, code, text):
    out.warnings.append(Warn(code, text))


def _bent(out, rows, max_num_seqs, gamma):
    """Warn where the engine uses another length than a reader of the table would expect."""
    ordered = sorted(rows)
    if ordered != list(rows):
        _note(out, "unsorted", "the ranges are not in order; the engine sorts them")
    for (_, last, k), (first, *_) in pairwise(ordered):
        if first > last + 1 and last < max_num_seqs:
            _note(
                out,
                "gap",
                f"no range for batch sizes {last + 1} to {first - 1}: the length before them, {k}, is carried on",
            )
    last, k = ordered[-1][1:]
    if last < max_num_seqs:
        state = "speculation stays off" if k == 0 else f"speculation goes on with {min(k, gamma)}"
        _note(out, "tail", f"the last range ends at {last}: {state} up to max_num_seqs = {max_num_seqs}")
    cut = [row for row in ordered if row[1] > max_num_seqs]
    if cut:
        _note(
            out, "cut", f"batches are never larger than max_num_seqs = {max_num_seqs}: {len(cut)} ranges are cut short"
        )
    clamped = sorted({k for first, _, k in ordered if k > gamma and first <= max_num_seqs})
    if clamped:
        _note(out, "clamp", f"draft lengths {clamped} are cut to num_speculative_tokens = {gamma} without a word")
    if any(later[2] > earlier[2] for earlier, later in pairwise(out.effective)):
        _note(out, "rises", "the draft length rises with the batch size; larger batches usually want shorter drafts")


def _method(out, static, method, runner, rel, gamma):
    """Warn of what method and runner make of the schedule; put the static length where it is dropped."""
    lowered = any(k != gamma for *_, k in out.effective)
    base = "mtp" if method and method.endswith("mtp") else method
    if runner == "V1" and method:
        if rel.v1_drops and base not in V1_SCHEDULES:
            out.effective = static
            _note(out, "method-drops", f"{method} on runner V1 drops the schedule with a warning: always {gamma}")
            return
        if not rel.v1_drops and base in V1_ASSERTS and lowered:
            _note(
                out, "crash",
                f"the engine starts and then dies at the first request with another length than {gamma}: {method} on "
                "runner V1 asserts the full length; drop the schedule or take another method",
            )  # fmt: skip
        if not rel.v1_drops and method == "custom_class":
            _note(out, "method-ignores", "custom_class ignores the schedule's draft lengths")
    if runner == "V1":
        _note(
            out, "piecewise", "with a schedule, runner V1 captures piecewise CUDA graphs only; full ones need runner V2"
        )
    elif base in rel.full_width and lowered:
        _note(
            out, "full-width",
            f"on runner V2 {method} drafts the full {gamma} tokens at every batch size and only verifies fewer: the "
            "schedule lowers verification, not drafting",
        )  # fmt: skip
    if any(k == 0 for *_, k in out.effective) and base not in NO_CACHE:
        _note(
            out, "zero-not-free",
            "draft length 0 is not the same as no speculation: a drafter with its own cache still runs one pass a step "
            "to keep it in step, and its memory stays reserved",
        )  # fmt: skip


def load(text):
    """Return the schedule or configuration in `text`: JSON, or the path of a file with JSON in it."""
    if text.lstrip()[:1] in ("[", "{", '"') or text.strip() in ("null", "true", "false"):
        return parse_json(text)
    source = Source(text)
    try:
        return parse_json(source.whole())
    except RecordError as error:
        raise RecordError(f"{text}: {error}") from None
    finally:
        source.close()
