"""What each figure of a report is, in words and symbols. Keys are fields of `metrics.Point`, or names of figures."""

from __future__ import annotations

_OVER = (
    "Over the measured requests that ended well, main agents and sub-agents alike; percentiles interpolate linearly."
)

FORMULAS = {
    "p90_interactivity": "1 / P90(full ITL), where full ITL of a request = (end of its HTTP stream − first piece of "
    f"the answer) / (output tokens − 1), for answers of two tokens or more. {_OVER}",
    "p90_interactivity_last_token": "1 / P90(ITL), where ITL = (last piece of the answer − first piece) / "
    f"(output tokens − 1). {_OVER}",
    "p90_e2e_interactivity": "1 / P90(E2E / output tokens), where E2E = last piece of the answer − request sent. "
    f"Includes the wait for the first token. {_OVER}",
    "mean_e2e_interactivity": f"Σ output tokens / Σ E2E: a mean, weighted by time. {_OVER}",
    "p90_interactivity_all": "As P90 interactivity, but requests that failed or were cut off count as infinitely slow; "
    "0 when they are the slowest tenth by themselves.",
    "tokens_per_gpu_s": "(Σ prompt tokens + Σ output tokens) / (last end − first start) / accelerators. Prompt tokens "
    "count whether computed or cached, so most of it is cached input: see the split.",
    "split": "computed = prompt − cached, cached = as the server reports them per request, generated = output; each / "
    "(last end − first start) / accelerators. Servers that report no cached tokens are counted as computing all.",
    "ttft_s": f"First piece of the answer − request sent, in seconds. {_OVER}",
    "itl_s": f"(Last piece of the answer − first piece) / (output tokens − 1), in seconds. {_OVER}",
    "full_itl_s": f"(End of the HTTP stream − first piece) / (output tokens − 1), in seconds. {_OVER}",
    "latency_s": f"Last piece of the answer − request sent, in seconds. {_OVER}",
    "hit_rate": "Σ cached tokens / Σ prompt tokens, both as the server reports them.",
    "hit_ceiling": "Σ tokens that an infinite cache finds / Σ prompt tokens, over the same requests: the very prompts "
    "sent, in the order sent, warm-up and earlier concurrencies included, in whole blocks of the server's size, and "
    "never the last prompt token.",
    "prompt_drift": "Σ prompt tokens as the server counts / Σ prompt tokens planned − 1: chat templates, and text that "
    "is tokenised otherwise than planned.",
    "goodput_per_s": "Requests that keep every limit of the SLO / (last end − first start). The share is of all "
    "requests issued: failed and cut ones have not kept it.",
    "requests": "issued = ended well + failed + cut off at the end of the run (after the grace). Only those that ended "
    "well are in the latency figures.",
    "cost": "Hourly price × accelerators × (last end − first start) / 3600, divided by: million tokens (prompt + "
    "output); million uncached tokens (computed + generated); turns that ended well; sessions, each turn counting "
    "1 / (turns of its session tree).",
    "frontier": "Points that no other point of the same run beats on both axes.",
    "swim_lane": "One row per agent of a lane's session tree, one bar per request from sent to end. Light: until the "
    "first piece of the answer. Lanes are the live session trees; sub-agents ride in their parent's.",
    "in_flight": "Requests under way at each moment, beside the number of lanes. More than lanes: sub-agents. Fewer: "
    "agents whose tools run.",
    "skipped_s": "Recorded idle time that the idle caps cut out, in seconds, summed over trees and the whole.",
    "lag_s": "Request sent − due, in seconds: the load generator's own lateness.",
    "hit_class": "whole: cached tokens ≥ what an infinite cache finds; part: fewer; lost: none though there were some; "
    "cold: nothing to find.",
}
