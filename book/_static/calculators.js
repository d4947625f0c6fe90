/* Three calculators that need no kernel and no network: the ledger, the converter of acceptance figures, the schedule
   checker. Each formula is that of `specgain` (module and function stand beside it); tests/book/test_calculators.py
   holds both against each other. Times are milliseconds. The pure part comes first, the pages' forms after it. */
(function () {
  "use strict";

  // ------------------------------------------------------------------------------------------------- small parts

  class InputError extends Error {}

  const refuse = (message) => { throw new InputError(message); };

  /* Return the numbers in a text such as "0.8, 0.75 0.7"; ranges of whole numbers such as "1-8" are written out. */
  function numbers(text, name) {
    const found = [];
    for (const part of text.trim().split(/[\s,;]+/).filter(Boolean)) {
      const range = part.match(/^(\d+)[-–](\d+)$/);
      if (range && +range[2] - range[1] < 1000) for (let g = +range[1]; g <= +range[2]; g++) found.push(g);
      else if (part !== "" && Number.isFinite(+part)) found.push(+part);
      else refuse(`${name}: “${part}” is not a number`);
    }
    return found;
  }

  function one(text, name, check = () => true, wanted = "") {
    const found = numbers(text, name);
    if (found.length !== 1) refuse(`${name}: give one number${wanted && ", " + wanted}`);
    if (!check(found[0])) refuse(`${name} = ${found[0]}: it must be ${wanted}`);
    return found[0];
  }

  const isProbability = (p) => p >= 0 && p <= 1;
  const isCount = (n) => Number.isInteger(n) && n >= 0;
  const isGamma = (n) => Number.isInteger(n) && n >= 1 && n <= 10000;

  function probabilities(text, name) {
    const found = numbers(text, name);
    if (!found.length) refuse(`${name}: give at least one number`);
    found.forEach((p, i) => isProbability(p) || refuse(`${name}, number ${i + 1} = ${p}: it must lie between 0 and 1`));
    return found;
  }

  // ------------------------------------------------------------------------------- acceptance (specgain.acceptance)

  function survival(conditional) {
    let product = 1;
    return conditional.map((a) => (product *= a));
  }

  function conditional(survived) {
    survived.forEach((s, i) => {
      if (i && s > survived[i - 1]) refuse(`survival rises from ${survived[i - 1]} to ${s} at position ${i + 1}; it can only fall`);
    });
    return survived.map((s, i) => { const before = i ? survived[i - 1] : 1; return before ? s / before : before; });
  }

  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const lengthOf = (a) => 1 + sum(survival(a));

  /* committed_length_constant */
  function closedForm(a, gamma) {
    if (a >= 1) return gamma + 1;
    if (a > 0) return -Math.expm1((gamma + 1) * Math.log(a)) / (1 - a);
    return 1;
  }

  /* constant_acceptance, by bisection to the last digit */
  function constantAcceptance(length, gamma) {
    if (length <= 1) return 0;
    let low = 0, high = 1;
    for (;;) {
      const middle = (low + high) / 2;
      if (middle === low || middle === high) return high;
      if (closedForm(middle, gamma) < length) low = middle; else high = middle;
    }
  }

  // ------------------------------------------------------------------------------------- cost (specgain.round_time)

  /* Return a curve γ → ms from "10, 0.7, 0.1" (base, per candidate, per candidate²) or a table "1: 4.2, 8: 6". */
  function cost(text, name) {
    if (!text.includes(":")) {
      const terms = text.trim() === "" ? [0] : numbers(text, name);
      if (terms.length > 3) refuse(`${name}: at most three numbers, base, per candidate and per candidate²`);
      if (terms.some((t) => t < 0)) refuse(`${name}: no term of a time can be below 0`);
      const [base, linear = 0, quadratic = 0] = terms;
      return { at: (g) => base + linear * g + quadratic * g * g, polynomial: [base, linear, quadratic], least: 0, most: Infinity };
    }
    const points = text.split(/[,;\n]+/).filter((part) => part.trim()).map((part) => {
      const [g, ms] = part.split(":");
      return [one(g, name, isCount, "a whole number of tokens"), one(ms || "", name, (t) => t >= 0, "a time of 0 ms or more")];
    }).sort((a, b) => a[0] - b[0]);
    points.forEach(([g], i) => { if (i && g === points[i - 1][0]) refuse(`${name}: γ = ${g} stands twice`); });
    const at = (g) => {
      const right = points.findIndex(([x]) => x >= g);
      const [g1, t1] = points[right];
      if (g1 === g) return t1;
      const [g0, t0] = points[right - 1];
      return t0 + (t1 - t0) * (g - g0) / (g1 - g0);
    };
    return { at, polynomial: null, least: points[0][0], most: points[points.length - 1][0] };
  }

  // -------------------------------------------------------------------------------- the ledger (specgain.gain, .length)

  /* Return {rows, best, curve} for a law (one a, or a_1 … a_n), t_D and three costs; rows as Ledger.rows. */
  function ledger({ a, gammas, t_decode, draft, verify, other }) {
    const law = probabilities(a, "acceptance");
    const tD = one(t_decode, "t_D", (t) => t > 0, "a time above 0 ms");
    const parts = [cost(draft, "T_draft"), cost(verify, "T_verify"), cost(other, "T_other")];
    const least = Math.max(...parts.map((p) => p.least));
    const most = Math.min(law.length > 1 ? law.length : Infinity, ...parts.map((p) => p.most));
    const wanted = [...new Set(numbers(gammas, "γ"))].sort((x, y) => x - y);
    if (!wanted.length) refuse("γ: give at least one length");
    for (const g of wanted) {
      if (!isGamma(g)) refuse(`γ = ${g}: a length is a whole number from 1 on`);
      if (g > most || g < least) refuse(`γ = ${g}: the acceptance and the times given reach from ${Math.max(1, least)} to ${most}`);
    }
    const length = (g) => (law.length > 1 ? lengthOf(law.slice(0, g)) : closedForm(law[0], g));
    const time = (g) => sum(parts.map((p) => p.at(g)));
    const row = (g) => {
      const committed = length(g), t = time(g);
      if (!(t > 0)) refuse(`the round takes ${t} ms at γ = ${g}; it must take some time`);
      return {
        gamma: g, committed_length: committed, t_round_ms: t, speedup: committed * tD / t, margin_ms: committed * tD - t,
        t_round_max_ms: committed * tD, committed_length_min: t / tD,
        conditional_min: t / tD > g + 1 ? null : constantAcceptance(Math.max(t / tD, 1), g),
      };
    };
    const polynomial = parts.every((p) => p.polynomial) && law.length === 1
      ? [0, 1, 2].map((i) => sum(parts.map((p) => p.polynomial[i]))) : null;
    const best = polynomial ? bestOfConvex(law[0], tD, row, ...polynomial) : bestOfRange(least, most, row, wanted);
    const last = Math.min(most, Math.max(8, Math.ceil(1.25 * wanted[wanted.length - 1])));
    const curve = [];
    const step = Math.max(1, Math.floor(last / 120));
    for (let g = Math.max(1, least); g <= last; g += step) curve.push([g, row(g).speedup]);
    return { rows: wanted.map(row), best, curve };
  }

  /* best_gamma where only some lengths are known: the shortest with the greatest speedup, 0 for none above 1 */
  function bestOfRange(least, most, row, wanted) {
    const end = Number.isFinite(most) ? most : wanted[wanted.length - 1];
    let best = 0, top = 1;
    for (let g = Math.max(1, least); g <= end; g++) if (row(g).speedup > top) [best, top] = [g, row(g).speedup];
    return best;
  }

  /* best_gamma over all lengths, for one a and a convex cost: gallop to the first step that does not pay */
  function bestOfConvex(a, tD, row, base, linear, quadratic) {
    if (quadratic === 0 && ((a === 1 && linear < base) || (a > 0 && linear === 0)))
      return tD > (a === 1 ? linear : base * (1 - a)) ? null : 0;
    const time = (g) => base + linear * g + quadratic * g * g;
    const pays = (g) => Math.pow(a, g + 1) * time(g) > closedForm(a, g) * (linear + quadratic * (2 * g + 1));
    let high = 1;
    while (pays(high)) high *= 2;
    let low = Math.floor(high / 2);
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (pays(middle)) low = middle; else high = middle;
    }
    return row(high).speedup > 1 ? high : 0;
  }

  // ----------------------------------------------------------------------- the converter (specgain.acceptance, records)

  /* What one may have in hand, and the fields that describe it: [name, label, hint, optional]. */
  const KINDS = {
    conditional: ["conditional acceptance a₁, a₂, …", [["values", "a₁, a₂, …", "one per position"]]],
    survival: ["survival s₁, s₂, … (vLLM: per-position acceptance rate)", [["values", "s₁, s₂, …", "one per position, never rising"]]],
    constant: ["one acceptance a for every position", [["a", "a", "from 0 to 1"], ["gamma", "γ", "candidates per round"]]],
    pooled: ["pooled rate: accepted over drafted (vLLM: draft acceptance rate)", [["rate", "pooled rate", "from 0 to 1, not percent"], ["gamma", "γ", "candidates per round"]]],
    length: ["mean length with the bonus token (vLLM, EAGLE: acceptance length τ)", [["length", "E[L]", "from 1 to γ + 1"], ["gamma", "γ", "candidates per round"]]],
    prefix: ["mean accepted prefix without the bonus", [["prefix", "E[K]", "from 0 to γ"], ["gamma", "γ", "candidates per round"]]],
    fill: ["fill rate: committed over verified positions (Chen et al.)", [["rate", "fill rate", "from 1/(γ+1) to 1"], ["gamma", "γ", "candidates per round"]]],
    counters: ["vLLM's counters, after the run minus before", [
      ["drafts", "drafts D", "…spec_decode_num_drafts"], ["drafted", "draft tokens P", "…num_draft_tokens"],
      ["accepted", "accepted A", "…num_accepted_tokens"],
      ["positions", "accepted per position", "…num_accepted_tokens_per_pos, in order", true],
      ["generated", "generation tokens G", "generation_tokens", true], ["requests", "requests n", "finished requests", true],
      ["rounds", "rounds R", "count of inter_token_latency_seconds", true]]],
  };

  /* Return {key: number, list or null} of everything that follows; null is not known. */
  function convert(kind, given) {
    if (kind === "counters") return fromCounters(given);
    if (kind === "conditional") return fromLaw(probabilities(given.values, "a"));
    if (kind === "survival") return fromLaw(conditional(probabilities(given.values, "s")));
    const gamma = one(given.gamma, "γ", isGamma, "a whole number of candidates, 1 or more");
    if (kind === "constant") {
      const a = one(given.a, "a", isProbability, "a probability from 0 to 1");
      return fromLength(closedForm(a, gamma), gamma, Array(gamma).fill(a));
    }
    const top = gamma + 1;
    if (kind === "pooled") return fromLength(1 + gamma * one(given.rate, "pooled rate", isProbability, "a rate from 0 to 1"), gamma);
    if (kind === "length") return fromLength(one(given.length, "E[L]", (l) => l >= 1 && l <= top, `from 1 to γ + 1 = ${top}`), gamma);
    if (kind === "prefix") return fromLength(1 + one(given.prefix, "E[K]", (k) => k >= 0 && k <= gamma, `from 0 to γ = ${gamma}`), gamma);
    const fill = one(given.rate, "fill rate", (f) => f * top >= 1 - 1e-12 && f <= 1, `from 1/(γ + 1) = ${(1 / top).toFixed(4)} to 1`);
    return fromLength(Math.max(1, fill * top), gamma);
  }

  const fromLaw = (a) => fromLength(lengthOf(a), a.length, a);

  function fromLength(length, gamma, law = null) {
    const pooled = (length - 1) / gamma;
    return {
      committed_length: length, accepted_prefix: length - 1, pooled_acceptance: pooled, fill_rate: length / (gamma + 1),
      constant_acceptance: constantAcceptance(length, gamma), conditional: law, survival: law && survival(law),
      pooled_error_percent: 100 * (closedForm(pooled, gamma) / length - 1),
    };
  }

  function fromCounters(given) {
    const count = (key, label) => one(given[key] || "", label, isCount, "a whole number, 0 or more");
    const maybe = (key, label) => ((given[key] || "").trim() ? count(key, label) : null);
    const D = count("drafts", "drafts D"), P = count("drafted", "draft tokens P"), A = count("accepted", "accepted A");
    if (!D) refuse("drafts D = 0: nothing was drafted, so there is no acceptance");
    if (P < D) refuse(`draft tokens P = ${P}: every one of the ${D} drafts holds at least one token`);
    if (A > P) refuse(`accepted A = ${A} exceeds the ${P} draft tokens`);
    const at = (given.positions || "").trim() ? numbers(given.positions, "accepted per position") : null;
    if (at && (at.some((n) => !isCount(n)) || sum(at) !== A)) refuse(`the positions add up to ${sum(at)}, accepted is ${A}`);
    const [G, n, R] = [maybe("generated", "generation tokens G"), maybe("requests", "requests n"), maybe("rounds", "rounds R")];
    const known = ![G, n, R].includes(null);
    if (known && (R < D || R === 0)) refuse(`rounds R = ${R}: there were ${D} rounds with a draft alone`);
    if (known && R + A < G - n) refuse(`${G - n} tokens came from ${R} rounds that accepted ${A}: more than R + A = ${R + A}`);
    const s = at && at.map((hits) => hits / D);
    return {
      committed_length: known ? (G - n) / R : null, committed_length_drafting_rounds: 1 + A / D, pooled_acceptance: A / P,
      mean_draft: P / D, survival: s, conditional: s && conditional(s), rounds_without_draft: known ? R - D : null,
      tokens_cut: known ? R + A - (G - n) : null,
    };
  }

  // -------------------------------------------------------------------------------- the schedule (specgain.schedule)

  const KEY = "num_speculative_tokens_per_batch_size";

  const shown = (value) => { const text = typeof value === "string" ? value : JSON.stringify(value); return text.length <= 60 ? text : text.slice(0, 59) + "…"; };
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

  function laxInt(value) {
    if (typeof value === "boolean") return [Number(value), null];
    if (typeof value === "number") {
      if (!Number.isFinite(value)) return [null, "finite_number"];
      return Number.isInteger(value) ? [value, null] : [null, "int_from_float"];
    }
    if (typeof value === "string") {
      const match = value.trim().match(/^([+-]?\d+(?:_\d+)*)(?:\.0+)?$/);
      return match && value.length < 4300 ? [Number(match[1].replaceAll("_", "")), null] : [null, "int_parsing"];
    }
    return [null, "int_type"];
  }

  function configRows(table) {
    if (!Array.isArray(table)) return [null, [["list_type", "the schedule is no list of [first, last, draft length]"]]];
    const rows = [], errors = [];
    table.forEach((row, number) => {
      if (!Array.isArray(row)) return errors.push(["tuple_type", `row ${number} is not [first, last, draft length]`]);
      if (row.length !== 3) errors.push([row.length < 3 ? "missing" : "too_long", `row ${number} has ${row.length} items; it needs first, last and draft length`]);
      if (row.length > 3) return null;
      const pairs = row.map(laxInt);
      pairs.forEach(([, code], place) => { if (code) errors.push([code, `row ${number}, item ${place}: ${shown(row[place])} is not a whole number`]); });
      return rows.push(pairs.map(([value]) => value));
    });
    return errors.length ? [null, errors] : [rows, []];
  }

  function configErrors(config, rel, runner, data) {
    const errors = [], fault = (code, text) => errors.push([code, text]);
    const method = config.method ?? null;
    for (const key of Object.keys(config).filter((k) => !rel.keys.includes(k)).sort()) fault("unknown_key", `${shown(key)} is no key of vLLM ${rel.version}'s speculative configuration`);
    if ("tensor_parallel_size" in config) fault("tensor_parallel_size", "the key is draft_tensor_parallel_size");
    if (method !== null && !rel.methods.includes(method)) fault("method", `method ${shown(method)} ${data.methods.includes(method) ? "was removed from" : "is unknown to"} vLLM ${rel.version}`);
    checkGamma(config, method, fault);
    checkLookup(config, fault);
    checkSampler(config, rel, fault);
    if (config.enable_adaptive_verification && (runner === "V1" || data.v1_only.includes(method))) fault("runner", "adaptive verification needs runner V2");
    return errors;
  }

  function checkGamma(config, method, fault) {
    const value = config.num_speculative_tokens ?? null;
    if (value === null) {
      const fillsIn = method === null || ["suffix", "dspark"].includes(method) || String(method).endsWith("mtp");
      if (!fillsIn || (method === null && !config.model)) fault("num_speculative_tokens", "num_speculative_tokens is required; a schedule does not replace it");
      return;
    }
    const [gamma, code] = laxInt(value);
    if (code || gamma <= 0) fault("num_speculative_tokens", `num_speculative_tokens = ${shown(value)}; it must be a whole number above 0`);
  }

  function checkLookup(config, fault) {
    const ends = ["min", "max"].map((end) => [end, config[`prompt_lookup_${end}`] ?? null]);
    for (const [end, value] of ends)
      if (value !== null && (laxInt(value)[1] || laxInt(value)[0] < 1)) return fault("prompt_lookup", `prompt_lookup_${end} = ${shown(value)}; it must be 1 or more`);
    const [low, high] = ends.map(([, value]) => value);
    if (low !== null && high !== null && laxInt(low)[0] > laxInt(high)[0]) fault("prompt_lookup", `prompt_lookup_min = ${low} must not exceed prompt_lookup_max = ${high}`);
    return null;
  }

  function checkSampler(config, rel, fault) {
    const sampler = "rejection_sample_method" in config ? config.rejection_sample_method : "standard";
    if (!rel.samplers.includes(sampler)) fault("rejection_sample_method", `${shown(sampler)} is none of ${rel.samplers.join(", ")}`);
    const draft = "draft_sample_method" in config ? config.draft_sample_method : "greedy";
    if (!["greedy", "probabilistic"].includes(draft)) fault("draft_sample_method", `${shown(draft)} is neither greedy nor probabilistic`);
    const given = ["synthetic_acceptance_rates", "synthetic_acceptance_length"].filter((k) => (config[k] ?? null) !== null);
    if (sampler === "synthetic" && given.length !== 1) fault("synthetic", "synthetic sampling needs just one of synthetic_acceptance_rates and …_length");
    if (sampler !== "synthetic" && given.length) fault("synthetic", `${given[0]} is for rejection_sample_method synthetic only`);
    const rates = config.synthetic_acceptance_rates;
    if (sampler === "synthetic" && Array.isArray(rates)) checkRates(rates, config.num_speculative_tokens ?? null, fault);
  }

  function checkRates(rates, gamma, fault) {
    if (!rates.every((r) => ["number", "boolean"].includes(typeof r) && r >= 0 && r <= 1)) fault("synthetic", `synthetic_acceptance_rates = ${shown(rates)} must lie in 0 to 1`);
    else if (rates.some((r, i) => i && r > rates[i - 1])) fault("synthetic", "synthetic_acceptance_rates must not rise: they are survival probabilities");
    else if (gamma !== null && laxInt(gamma)[0] !== rates.length) fault("synthetic", `${rates.length} synthetic_acceptance_rates for num_speculative_tokens = ${gamma}`);
  }

  const byRow = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];

  function lookupErrors(rows) {
    const errors = [];
    for (const row of rows) {
      const [first, last, gamma] = row;
      if (first < 1 || last < 1) errors.push(["not_positive", `[${row}]: batch sizes start at 1`]);
      else if (first > last) errors.push(["start_gt_end", `[${row}]: the first size exceeds the last`]);
      else if (gamma < 0) errors.push(["negative", `[${row}]: a draft length is 0 or more`]);
    }
    if (errors.length || !rows.length) return errors;
    const ordered = [...rows].sort(byRow);
    ordered.slice(1).forEach((row, i) => { if (row[0] <= ordered[i][1]) errors.push(["overlap", `[${ordered[i]}] and [${row}] overlap`]); });
    if (ordered[0][0] !== 1) errors.push(["first_start", `the first range starts at ${ordered[0][0]}; every batch size from 1 on needs one`]);
    return errors;
  }

  function effective(rows, maxSeqs, gamma) {
    const ordered = [...rows].sort(byRow), merged = [];
    ordered.forEach(([first, , k], i) => {
      if (first > maxSeqs) return;
      const end = Math.min(i + 1 < ordered.length ? ordered[i + 1][0] - 1 : maxSeqs, maxSeqs), length = Math.min(k, gamma);
      const before = merged[merged.length - 1];
      if (before && before[2] === length) before[1] = end; else merged.push([first, end, length]);
    });
    return merged;
  }

  /* Return what specgain.schedule.check returns as JSON: {ok, stage, errors, warnings, effective, engine}. */
  function checkSchedule(given, options, data) {
    const rel = data.releases[options.engine] || refuse(`engine ${options.engine} is not known here`);
    const runnerAsked = options.runner || null;
    let maxSeqs = options.max_num_seqs ?? null;
    let config = { [KEY]: given };
    if (isObject(given)) {
      const renamed = Object.fromEntries(Object.entries(given).map(([key, value]) => [key.replaceAll("-", "_"), value]));
      if (Object.keys(renamed).some((key) => data.keys.includes(key))) config = renamed;
    }
    if (options.method) config.method = options.method;
    if ((options.num_speculative_tokens ?? null) !== null) config.num_speculative_tokens = options.num_speculative_tokens;
    const table = config[KEY] ?? null, asked = config.num_speculative_tokens ?? null;
    const gamma = asked === null ? null : laxInt(asked)[0];
    const done = (stage, errors, warnings = [], ranges = null) => ({ ok: !errors.length, stage, errors, warnings, effective: ranges, engine: `vllm==${rel.version}` });
    const errors = Object.keys(config).length > 1 || "method" in config ? configErrors(config, rel, runnerAsked, data) : [];
    const [rows, wrong] = table === null ? [[], []] : configRows(table);
    errors.push(...wrong);
    if (errors.length) return done("config", errors);
    const refused = lookupErrors(rows);
    if (refused.length) return done("lookup", refused);
    const [ranges, warnings] = apply(rows, table, config, rel, maxSeqs, gamma, runnerAsked, options.data_parallel_size || 1, data);
    return done("none", [], warnings, ranges);
  }

  function apply(rows, table, config, rel, maxSeqs, gamma, runnerAsked, dataParallel, data) {
    const notes = [], note = (code, text) => notes.push([code, text]);
    const method = config.method ?? null;
    const runner = data.v1_only.includes(method) ? "V1" : runnerAsked;
    if (maxSeqs === null) {
      maxSeqs = rows.length ? Math.max(...rows.map((row) => row[1])) : 1;
      note("max-num-seqs-unknown", "give max_num_seqs: the last draft length goes on up to it");
    }
    if (gamma === null) {
      gamma = rows.length ? Math.max(...rows.map((row) => row[2])) : 0;
      if (rows.length) note("num-speculative-tokens-unknown", "give num_speculative_tokens: longer drafts are cut to it");
    }
    const fixed = [[1, maxSeqs, gamma]];
    if (!rows.length) {
      if (table !== null) note("ignored", "an empty schedule is ignored: the draft length stays num_speculative_tokens (leave the key out)");
      return [fixed, notes];
    }
    const ranges = effective(rows, maxSeqs, gamma);
    bent(note, rows, ranges, maxSeqs, gamma);
    if (dataParallel > 1) {
      note("data-parallel", `with data_parallel_size = ${dataParallel} the schedule is dropped: always ${gamma}`);
      return [fixed, notes];
    }
    return [byMethod(note, ranges, fixed, method, runner, rel, gamma, data), notes];
  }

  function bent(note, rows, ranges, maxSeqs, gamma) {
    const ordered = [...rows].sort(byRow);
    if (ordered.some((row, i) => row !== rows[i] && byRow(row, rows[i]) !== 0)) note("unsorted", "the ranges are not in order; the engine sorts them");
    ordered.slice(1).forEach(([first], i) => {
      const [, last, k] = ordered[i];
      if (first > last + 1 && last < maxSeqs) note("gap", `no range for batch sizes ${last + 1} to ${first - 1}: the length before them, ${k}, is carried on`);
    });
    const [, last, k] = ordered[ordered.length - 1];
    if (last < maxSeqs) note("tail", `the last range ends at ${last}: ${k === 0 ? "speculation stays off" : `speculation goes on with ${Math.min(k, gamma)}`} up to max_num_seqs = ${maxSeqs}`);
    const cut = ordered.filter((row) => row[1] > maxSeqs).length;
    if (cut) note("cut", `batches are never larger than max_num_seqs = ${maxSeqs}: ${cut} range${cut > 1 ? "s are" : " is"} cut short`);
    const clamped = [...new Set(ordered.filter(([first, , length]) => length > gamma && first <= maxSeqs).map((row) => row[2]))].sort((a, b) => a - b);
    if (clamped.length) note("clamp", `draft lengths ${clamped.join(", ")} are cut to num_speculative_tokens = ${gamma} without a word`);
    if (ranges.some((range, i) => i && range[2] > ranges[i - 1][2])) note("rises", "the draft length rises with the batch size; larger batches usually want shorter drafts");
  }

  function byMethod(note, ranges, fixed, method, runner, rel, gamma, data) {
    const lowered = ranges.some((range) => range[2] !== gamma);
    const base = method && method.endsWith("mtp") ? "mtp" : method;
    if (runner === "V1" && method) {
      if (rel.v1_drops && !data.v1_schedules.includes(base)) {
        note("method-drops", `${method} on runner V1 drops the schedule with a warning: always ${gamma}`);
        return fixed;
      }
      if (!rel.v1_drops && data.v1_asserts.includes(base) && lowered) note("crash", `the engine starts and dies at the first request with another length than ${gamma}: ${method} on runner V1 asserts the full length`);
      if (!rel.v1_drops && method === "custom_class") note("method-ignores", "custom_class ignores the schedule's draft lengths");
    }
    if (runner === "V1") note("piecewise", "with a schedule, runner V1 captures piecewise CUDA graphs only; full ones need runner V2");
    else if (rel.full_width.includes(base) && lowered) note("full-width", `on runner V2 ${method} drafts the full ${gamma} tokens at every batch size and only verifies fewer: the schedule lowers verification, not drafting`);
    if (ranges.some((range) => range[2] === 0) && !data.no_cache.includes(base)) note("zero-not-free", "draft length 0 is not the same as no speculation: a drafter with its own cache still runs one pass a step, and its memory stays reserved");
    return ranges;
  }

  window.specgainCalculators = { ledger, convert, checkSchedule, InputError };

  // ------------------------------------------------------------------------------------------------- the pages' forms

  const make = (tag, options = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(options))
      if (name === "text") node.textContent = value; else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    node.append(...children);
    return node;
  };
  const fixedDigits = (value, digits) => value.toFixed(digits).replace("-", "−");
  const signed = (value, digits) => (value >= 0 ? "+" : "") + fixedDigits(value, digits);

  let serial = 0;

  /* Return a labelled input, select or textarea, with a hint that screen readers connect to it. */
  function field(name, label, { hint = "", value = "", options = null, area = false, wide = false } = {}) {
    const id = `sg-${name}-${++serial}`;
    const input = make(options ? "select" : area ? "textarea" : "input", { id, name, "aria-describedby": hint ? `${id}-hint` : null, autocomplete: "off", spellcheck: options ? null : "false", rows: area ? 3 : null });
    for (const [key, text] of options || []) input.append(make("option", { value: key, text }));
    if (!options || value) input.value = value;
    const parts = [make("label", { for: id, text: label }), input];
    if (hint) parts.push(make("small", { id: `${id}-hint`, text: hint }));
    return make("div", { class: wide ? "sg-field sg-wide" : "sg-field" }, ...parts);
  }

  /* Fill a calculator's box with a form and two results, one said aloud and one to look at; run it on every change. */
  function calculator(box, fields, run) {
    const form = make("form", { class: "sg-form" }, ...fields);
    const said = make("p", { class: "sg-said", role: "status", "aria-live": "polite" });
    const seen = make("div", { class: "sg-seen" });
    box.replaceChildren(form, said, seen);
    const update = () => {
      const values = Object.fromEntries([...form.elements].filter((e) => e.name).map((e) => [e.name, e.value]));
      try {
        const { text, nodes, wrong = false } = run(values);
        said.textContent = text;
        seen.replaceChildren(...nodes);
        box.classList.toggle("sg-wrong", wrong);
      } catch (error) {
        if (!(error instanceof InputError)) throw error;
        said.textContent = error.message + ".";
        seen.replaceChildren();
        box.classList.add("sg-wrong");
      }
    };
    let waiting;
    form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(update, 150); });
    form.addEventListener("submit", (event) => { event.preventDefault(); update(); });
    update();
    return { form, update };
  }

  function table(caption, heads, rows) {
    const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, ...text.split(/(?<=_)/).flatMap((part, i) => (i ? [make("wbr"), part] : [part])))));
    const body = rows.map((cells) => make("tr", {}, ...cells.map(([text, value], i) => make(i ? "td" : "th", { scope: i ? null : "row", text, "data-value": value ?? null }))));
    return make("div", { class: "sg-scroll", tabindex: "0", role: "region", "aria-label": caption }, make("table", {}, make("caption", { text: caption }), make("thead", {}, head), make("tbody", {}, ...body)));
  }

  const svg = (tag, options, text = "") => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(options)) node.setAttribute(name, value);
    node.textContent = text;
    return node;
  };

  /* Return the curve S(γ): open circles are predictions, the horizontal line is break-even. */
  function curve({ curve: points, rows, best }) {
    const [wide, high, left, bottom] = [480, 220, 44, 34], last = points[points.length - 1][0];
    const top = Math.max(1.2, ...points.map(([, s]) => s)) * 1.08;
    const x = (g) => left + 8 + (wide - left - 20) * (last === points[0][0] ? 0.5 : (g - points[0][0]) / (last - points[0][0]));
    const y = (s) => 8 + (high - bottom - 8) * (1 - s / top);
    const label = `Speedup over the length: ${rows.map((r) => `γ = ${r.gamma}, S = ${r.speedup.toFixed(2)}`).join("; ")}.`;
    const drawing = svg("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": label, class: "sg-curve" });
    const step = [0.25, 0.5, 1, 2, 5, 10, 20, 50, 100].find((d) => top / d <= 6) || top / 5;
    for (let s = 0; s <= top; s += step) {
      drawing.append(svg("line", { x1: left, x2: wide - 12, y1: y(s), y2: y(s), class: "sg-grid" }));
      drawing.append(svg("text", { x: left - 6, y: y(s) + 4, "text-anchor": "end" }, String(+s.toFixed(2))));
    }
    const every = Math.max(1, Math.ceil((last - points[0][0] + 1) / 10));
    for (let g = points[0][0]; g <= last; g += every) drawing.append(svg("text", { x: x(g), y: high - 18, "text-anchor": "middle" }, String(g)));
    drawing.append(svg("text", { x: (left + wide) / 2, y: high - 2, "text-anchor": "middle" }, "speculation length γ (tokens)"));
    drawing.append(svg("line", { x1: left, x2: wide - 12, y1: y(1), y2: y(1), class: "sg-even" }));
    drawing.append(svg("text", { x: wide - 12, y: y(1) - 5, "text-anchor": "end", class: "sg-label" }, "break-even, S = 1"));
    drawing.insertBefore(svg("polyline", { points: points.map(([g, s]) => `${x(g).toFixed(1)},${y(s).toFixed(1)}`).join(" "), class: "sg-line" }), drawing.lastChild);
    for (const row of rows) drawing.append(svg("circle", { cx: x(row.gamma), cy: y(row.speedup), r: row.gamma === best ? 7 : 4.5, class: row.speedup > 1 ? "sg-gain" : "sg-loss" }));
    return drawing;
  }

  function ledgerForm(box, data) {
    const presets = [["", "your own numbers"], ...data.presets.map((preset, i) => [String(i), preset.name])];
    const fields = [
      field("preset", "Start from", { options: presets, value: "0", wide: true }),
      field("a", "Acceptance", { hint: "one a, or a₁, a₂, … per position", wide: true }),
      field("gammas", "Lengths γ", { hint: "such as 1, 2, 4 or 1-8" }),
      field("t_decode", "Ordinary step t_D (ms)"),
      field("draft", "T_draft (ms)", { hint: "base, per γ, per γ²; or γ: ms, γ: ms, …" }),
      field("verify", "T_verify (ms)", { hint: "written in the same way" }),
      field("other", "T_other (ms)", { hint: "written in the same way" }),
    ];
    const { form, update } = calculator(box, fields, (values) => {
      const found = ledger(values);
      const row = found.rows.reduce((a, b) => (b.speedup > a.speedup ? b : a));
      const best = found.best === null ? "Every further candidate still pays." : found.best === 0 ? "No length beats plain decoding." : `Best length: γ = ${found.best}.`;
      const text = `γ = ${row.gamma}: ${row.committed_length.toFixed(3)} tokens in ${row.t_round_ms.toFixed(2)} ms, S = ${row.speedup.toFixed(3)}, margin ${signed(row.margin_ms, 2)} ms: ${row.margin_ms > 0 ? "faster" : "not faster"}. ${best}`;
      const rows = found.rows.map((r) => [
        [String(r.gamma), r.gamma], [r.committed_length.toFixed(3), r.committed_length], [r.t_round_ms.toFixed(2), r.t_round_ms],
        [r.speedup.toFixed(3), r.speedup], [signed(r.margin_ms, 2), r.margin_ms], [r.t_round_max_ms.toFixed(2), r.t_round_max_ms],
        [r.committed_length_min.toFixed(3), r.committed_length_min], [r.conditional_min === null ? "none" : r.conditional_min.toFixed(3), r.conditional_min]]);
      const heads = ["γ", "E[L]", "T_round (ms)", "S", "M (ms)", "T_round max", "E[L] min", "a min"];
      return { text, nodes: [curve(found), table("The ledger and its break-even", heads, rows)] };
    });
    const choose = (index) => {
      const preset = data.presets[index];
      if (!preset) return;
      for (const key of ["a", "gammas", "t_decode", "draft", "verify", "other"]) form.elements[key].value = preset[key];
      update();
    };
    form.addEventListener("input", (event) => {
      if (event.target.name === "preset") choose(event.target.value); else form.elements.preset.value = "";
    });
    choose(0);
  }

  const FACTS = [
    ["committed_length", "E[L], tokens per round, bonus in, over all rounds", 4], ["committed_length_drafting_rounds", "1 + A/D, over rounds with a draft (vLLM: mean acceptance length)", 4],
    ["accepted_prefix", "E[K], accepted prefix, without the bonus", 4], ["pooled_acceptance", "pooled rate, accepted over drafted", 4],
    ["fill_rate", "fill rate, E[L]/(γ + 1)", 4], ["constant_acceptance", "the constant a with the same E[L]", 4],
    ["pooled_error_percent", "error of E[L] if the pooled rate stood in the closed form, %", 1], ["mean_draft", "draft tokens per draft", 4],
    ["rounds_without_draft", "rounds without a draft", 0], ["tokens_cut", "accepted tokens cut at the end", 0],
    ["conditional", "conditional acceptance a₁, a₂, …", 4], ["survival", "survival s₁, s₂, …", 4],
  ];

  function converterForm(box) {
    const kinds = Object.entries(KINDS).map(([key, [text]]) => [key, text]);
    const start = { conditional: { values: "0.9, 0.8, 0.7" }, survival: { values: "0.739 0.478 0.261 0.174 0.130 0.087 0.043" }, constant: { a: "0.8", gamma: "4" }, pooled: { rate: "0.59", gamma: "4" },
      length: { length: "3.36", gamma: "4" }, prefix: { prefix: "2.36", gamma: "4" }, fill: { rate: "0.672", gamma: "4" },
      counters: { drafts: "42", drafted: "126", accepted: "78", positions: "", generated: "192", requests: "4", rounds: "111" } };
    const holder = make("div"), menu = field("kind", "What I have", { options: kinds, value: "survival", wide: true });
    box.replaceChildren(make("form", { class: "sg-form" }, menu), holder);
    menu.parentElement.addEventListener("submit", (event) => event.preventDefault());
    const choose = () => {
      const kind = menu.querySelector("select").value;
      const fields = KINDS[kind][1].map(([name, label, hint, optional]) => field(name, label, { hint: hint + (optional ? " (may stay empty)" : ""), value: start[kind][name], wide: name === "values" || name === "positions" }));
      calculator(holder, fields, (values) => {
        const found = convert(kind, values);
        const length = found.committed_length ?? null;
        const text = length === null ? `Over rounds with a draft ${found.committed_length_drafting_rounds.toFixed(3)} tokens; over all rounds not known without G, n and R.` : `E[L] = ${length.toFixed(3)} tokens per round.`;
        const rows = FACTS.filter(([key]) => key in found).map(([key, label, digits]) => {
          const value = found[key];
          const said = value === null ? "not known" : Array.isArray(value) ? value.map((v) => v.toFixed(digits)).join("  ") : fixedDigits(value, digits);
          return [[label], [said, value === null ? "" : Array.isArray(value) ? value.join(" ") : value]];
        });
        return { text, nodes: [table("The same in other words", ["quantity", "value"], rows)] };
      });
    };
    menu.addEventListener("input", choose);
    choose();
  }

  function scheduleForm(box, data) {
    const versions = Object.keys(data.releases).map((version) => [version, `vLLM ${version}`]);
    const methods = [["", "not said"], ...data.methods.map((name) => [name, name])];
    const fields = [
      field("schedule", "Schedule, or a whole speculative configuration (JSON)", { area: true, wide: true, value: "[[1, 64, 3], [65, 128, 1], [129, 512, 0]]", hint: "rows of first batch size, last batch size, draft length" }),
      field("num_speculative_tokens", "num_speculative_tokens", { value: "3", hint: "may stay empty" }),
      field("max_num_seqs", "max_num_seqs", { value: "512", hint: "may stay empty" }),
      field("engine", "Engine", { options: versions }), field("method", "Method", { options: methods, value: "eagle3" }),
      field("runner", "Model runner", { options: [["", "default"], ["V1", "V1"], ["V2", "V2"]] }),
      field("data_parallel_size", "data_parallel_size", { value: "1" }),
    ];
    calculator(box, fields, (values) => {
      let given;
      try { given = JSON.parse(values.schedule); } catch (error) { refuse(`the schedule is no JSON (${error.message})`); }
      const whole = (key) => (values[key].trim() ? one(values[key], key, (n) => isCount(n) && n > 0, "a whole number above 0") : null);
      const options = { engine: values.engine, method: values.method, runner: values.runner };
      for (const key of ["num_speculative_tokens", "max_num_seqs", "data_parallel_size"]) options[key] = whole(key);
      const found = checkSchedule(given, options, data);
      const count = (list, word) => `${list.length} ${word}${list.length === 1 ? "" : "s"}`;
      const text = found.ok ? `The engine takes it, with ${count(found.warnings, "warning")}.` : `The engine refuses it at the stage “${found.stage}”: ${count(found.errors, "error")}.`;
      const list = (entries, name) => make("ul", { class: name }, ...entries.map(([code, said]) => make("li", { "data-code": code }, make("code", { text: code }), ` ${said}`)));
      const nodes = [list(found.errors, "sg-errors"), list(found.warnings, "sg-warnings")].filter((node) => node.children.length);
      if (found.effective) nodes.push(table("What the engine will use", ["batch sizes", "draft length", "positions verified at the last size"], found.effective.map(([first, last, k]) => [[`${first}–${last}`, `${first} ${last}`], [String(k), k], [String(last * (k + 1)), last * (k + 1)]])));
      return { text, nodes, wrong: !found.ok };
    });
  }

  function start() {
    const source = document.getElementById("specgain-calculators");
    if (!source) return;
    const data = JSON.parse(source.textContent);
    window.specgainCalculators.data = data;
    const forms = { ledger: ledgerForm, converter: converterForm, schedule: scheduleForm };
    for (const box of document.querySelectorAll("[data-calculator]")) forms[box.dataset.calculator](box, data);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
