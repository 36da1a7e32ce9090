// Asks the server every second and says how that goes. The key, where one is needed, stays in this tab's storage and goes
// nowhere but to this server.

const KEY = "samovar-key";
const EVERY_MS = 1000;
const HIDDEN_MS = 5000;
const SLOWEST_MS = 10000;
const ANSWER_MS = 8000;
const SESSIONS = 100;

class Feed {
  // `answered(state)`, `failed(message)`, `keyWanted(message)`.
  constructor(handlers) {
    this.handlers = handlers;
    this.failures = 0;
    this.paused = false;
    this.timer = null;
  }

  get key() {
    return sessionStorage.getItem(KEY);
  }

  // Returns whether it can be sent at all.
  setKey(text) {
    if (!/^[\x21-\x7e]+$/.test(text)) return false;
    sessionStorage.setItem(KEY, text);
    this.soon(0);
    return true;
  }

  forgetKey() {
    sessionStorage.removeItem(KEY);
    this.soon(0);
  }

  pause(paused) {
    this.paused = paused;
    if (paused) clearTimeout(this.timer);
    else this.soon(0);
  }

  soon(delay_ms) {
    clearTimeout(this.timer);
    if (!this.paused) this.timer = setTimeout(() => this.ask(), delay_ms);
  }

  async ask() {
    const asked_with = this.key;
    const every_ms = document.hidden ? HIDDEN_MS : EVERY_MS;
    let response;
    let body;
    try {
      [response, body] = await fetched(asked_with);
    } catch (error) {
      this.refused(reasonOf(error), every_ms);
      return;
    }
    if (asked_with !== this.key || this.paused) return;
    if (response.status === 401) {
      sessionStorage.removeItem(KEY);
      this.handlers.keyWanted(asked_with ? "The server does not know this key." : "");
    } else if (!response.ok) {
      this.refused(body?.error?.message ?? `The server answered ${response.status}.`, every_ms);
    } else {
      this.failures = 0;
      this.soon(every_ms);
      this.handlers.answered(body);
    }
  }

  refused(message, every_ms) {
    if (this.paused) return;
    this.soon(Math.min(SLOWEST_MS, every_ms * 2 ** Math.min(this.failures, 4)));
    this.failures += 1;
    this.handlers.failed(message);
  }
}

async function fetched(key) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const signal = AbortSignal.timeout(ANSWER_MS);
  const response = await fetch(`v1/cache?sessions=${SESSIONS}`, { headers, signal, cache: "no-store" });
  return [response, await response.json()];
}

function reasonOf(error) {
  if (error.name === "TimeoutError") return "The server does not answer.";
  if (error instanceof SyntaxError) return "The answer cannot be read.";
  if (error instanceof TypeError) return "The server cannot be reached.";
  return error.message;
}
