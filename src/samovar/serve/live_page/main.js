// Puts the parts together.

const past = new History();
const sessions = new Sessions(byId("sessions"), byId("session-row"));
const drawTokens = tokensChart(past);
const drawHits = hitsChart(past);
let latest = null;

function show(state) {
  latest = state;
  past.add(state);
  say(byId("model"), state.model);
  say(byId("policy"), `${state.policy} retention, blocks of ${state.block_size} tokens`);
  renderTiles(state, past);
  drawTokens();
  drawHits();
  renderTiers(state.tiers, state.block_size);
  renderLegend(state.tiers);
  renderSessions(state);
  renderMisses(state.misses);
  renderMoves(state);
}

function renderSessions(state) {
  const shown = state.sessions.length;
  const counted = state.num_sessions > shown ? `latest ${shown} of ${whole(state.num_sessions)}` : `${shown}`;
  say(byId("sessions-count"), counted);
  byId("sessions-empty").hidden = shown > 0;
  const scale = sessions.render(state.sessions, state.tiers.map((tier) => tier.tier));
  byId("axis").hidden = shown === 0;
  say(byId("axis-end"), `${short(scale)} tokens`);
}

function setStatus(kind, text) {
  byId("status").dataset.state = kind;
  say(byId("status"), text);
}

function askForKey(wanted, message = "") {
  byId("key-form").hidden = !wanted;
  byId("main").hidden = wanted;
  byId("forget").hidden = wanted || !feed.key;
  say(byId("key-error"), message);
}

const feed = new Feed({
  answered(state) {
    askForKey(false);
    setStatus("live", "Live");
    show(state);
  },
  failed(message) {
    setStatus("bad", latest ? `${message} Figures are old.` : message);
  },
  keyWanted(message) {
    latest = null;
    past.clear();
    setStatus("wait", "Key needed");
    askForKey(true, message);
    byId("key").focus();
  },
});

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const input = byId("key");
  if (!feed.setKey(input.value.trim())) {
    say(byId("key-error"), "A key is printable ASCII without spaces.");
    return;
  }
  input.value = "";
});
byId("forget").addEventListener("click", () => feed.forgetKey());
byId("pause").addEventListener("click", (event) => {
  const paused = event.currentTarget.getAttribute("aria-pressed") !== "true";
  event.currentTarget.setAttribute("aria-pressed", String(paused));
  feed.pause(paused);
  setStatus("wait", paused ? "Paused" : "Connecting");
});
byId("sort").addEventListener("change", (event) => {
  sessions.order = event.currentTarget.value;
  if (latest) renderSessions(latest);
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) feed.soon(0);
});
feed.soon(0);
