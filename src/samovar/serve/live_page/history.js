// Counters to rates. The server's counters only grow; what lies between two answers is spread evenly over the time
// between them. Times are the server's own, in seconds.

const BUCKET_S = 5;
const BUCKETS = 60;
const HIT_WINDOW_S = 60;
const NOW_WINDOW_S = 30;

function counted(state) {
  const { tokens, hits } = state;
  return {
    cached: tokens.cached,
    computed: tokens.computed + tokens.recomputed,
    generated: tokens.generated,
    prompt: tokens.prompt,
    ceiling: hits.ceiling_tokens,
  };
}

class History {
  constructor() {
    this.clear();
  }

  clear() {
    this.samples = [];
    this.buckets = new Map();
    this.time_s = null;
    this.began_s = null;
  }

  add(state) {
    const sample = { time_s: state.time_s, ...counted(state) };
    const last = this.samples.at(-1);
    if (last) {
      if (sample.time_s === last.time_s) return;
      const kinds = Object.keys(counted(state));
      if (sample.time_s < last.time_s || kinds.some((kind) => sample[kind] < last[kind])) {
        // Another engine answers: nothing before it can be compared.
        this.clear();
      } else {
        this.spread(last, sample, kinds);
      }
    }
    this.samples.push(sample);
    this.time_s = sample.time_s;
    this.began_s ??= sample.time_s;
    while (this.samples.length > 2 && this.samples[1].time_s < sample.time_s - HIT_WINDOW_S) this.samples.shift();
    for (const at of this.buckets.keys()) {
      if (at < this.newest() - BUCKETS - HIT_WINDOW_S / BUCKET_S) this.buckets.delete(at);
    }
  }

  spread(from, to, kinds) {
    const span = to.time_s - from.time_s;
    const first = Math.max(Math.floor(from.time_s / BUCKET_S), Math.floor(to.time_s / BUCKET_S) - 2 * BUCKETS);
    for (let at = first; at * BUCKET_S < to.time_s; at += 1) {
      const covered = Math.min(to.time_s, (at + 1) * BUCKET_S) - Math.max(from.time_s, at * BUCKET_S);
      if (covered <= 0) continue;
      const bucket = this.buckets.get(at) ?? { covered_s: 0, ...Object.fromEntries(kinds.map((kind) => [kind, 0])) };
      bucket.covered_s += covered;
      for (const kind of kinds) bucket[kind] += ((to[kind] - from[kind]) * covered) / span;
      this.buckets.set(at, bucket);
    }
  }

  // Seconds of which something is known.
  get seen_s() {
    return this.time_s === null ? 0 : this.time_s - this.began_s;
  }

  newest() {
    return Math.ceil(this.time_s / BUCKET_S) - 1;
  }

  // The last BUCKETS buckets, oldest first: tokens per second of a kind, null where nothing was seen.
  rates(kind) {
    return this.window((bucket) => (bucket ? bucket[kind] / Math.max(bucket.covered_s, 0.5) : null));
  }

  // Of the minute up to each bucket: a share of the prompt tokens, null where there were none.
  shares(kind) {
    return this.window((bucket, at) => {
      let part = 0;
      let all = 0;
      for (let step = at - HIT_WINDOW_S / BUCKET_S + 1; step <= at; step += 1) {
        const one = this.buckets.get(step);
        if (one) {
          part += one[kind];
          all += one.prompt;
        }
      }
      return bucket && all > 0 ? part / all : null;
    });
  }

  window(value) {
    if (this.time_s === null) return Array(BUCKETS).fill(null);
    const newest = this.newest();
    return Array.from({ length: BUCKETS }, (_, index) => {
      const at = newest - BUCKETS + 1 + index;
      return value(this.buckets.get(at), at);
    });
  }

  // Tokens per second over the last seconds, or null before there are two answers.
  now(kind) {
    const last = this.samples.at(-1);
    const first = this.samples.find((sample) => sample.time_s >= last.time_s - NOW_WINDOW_S - 0.5);
    if (!last || first === last) return null;
    return (last[kind] - first[kind]) / (last.time_s - first.time_s);
  }
}

// Seconds before now at which a bucket began.
const ago = (index) => (BUCKETS - 1 - index) * BUCKET_S;
