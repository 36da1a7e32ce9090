// Tiles, tiers, misses and moves: figures as they stand in the answer.

// In this order and always all of them, so that nothing moves when the first miss of a kind comes.
const MISSES = [
  ["cold", "nothing was known of the prompt"],
  ["new", "tokens never seen before follow"],
  ["cut", "it differs from the session's last turn"],
  ["evicted", "it had made room for others"],
  ["expired", "it was kept no longer"],
  ["failed_load", "a tier could not deliver it"],
  ["disabled", "no cache was wanted"],
];

function renderTiles(state, history) {
  const { hits, requests } = state;
  say(byId("hit-rate"), hits.rate === null ? "–" : percent(hits.rate));
  const ceiling = hits.rate_ceiling === null ? "no prompts yet" : `an infinite cache: ${percent(hits.rate_ceiling)}`;
  say(byId("hit-note"), ceiling);
  const meter = byId("hit-meter");
  meter.setAttribute("aria-label", `Hit rate ${byId("hit-rate").textContent}, ${ceiling}`);
  meter.children[0].style.width = percent(Math.min(1, hits.rate ?? 0), 2);
  meter.children[1].style.left = percent(Math.min(1, hits.rate_ceiling ?? 0), 2);
  meter.children[1].style.opacity = hits.rate_ceiling === null ? "0" : "1";
  say(byId("saved"), seconds(state.saved_s));
  const rate = state.prefill_tokens_per_s;
  say(byId("saved-note"), rate ? `of prefill, at ${short(rate)} tokens/s` : "prefill rate not measured yet");
  say(byId("running"), `${whole(requests.running)} running`);
  say(byId("waiting"), `${whole(requests.waiting)} waiting, ${whole(requests.preemptions)} preempted so far`);
  renderSpeed(history);
}

function renderSpeed(history) {
  const rates = KINDS.map((kind) => history.now(kind));
  const total = rates.reduce((sum, rate) => sum + (rate ?? 0), 0);
  say(byId("speed"), rates[0] === null ? "–" : short(total));
  const bar = byId("speed-share");
  KINDS.forEach((kind, at) => {
    bar.querySelector(`.${kind}`).style.width = total ? percent(rates[at] / total, 2) : "0";
    say(byId(`now-${kind}`), rates[at] === null ? "–" : `${short(rates[at])}/s`);
  });
  say(byId("speed-note"), total ? `${percent(rates[0] / total, 0)} of them cached, last ${NOW_WINDOW_S} s` : `last ${NOW_WINDOW_S} s`);
  const split = KINDS.map((kind, at) => `${kind} ${total ? percent(rates[at] / total) : "0%"}`).join(", ");
  bar.setAttribute("aria-label", split);
}

function renderTiers(tiers, blockTokens) {
  const box = byId("tiers");
  while (box.children.length < tiers.length) box.append(byId("tier-card").content.firstElementChild.cloneNode(true));
  while (box.children.length > tiers.length) box.lastElementChild.remove();
  tiers.forEach((tier, at) => fillTier(box.children[at], tier, blockTokens));
}

function fillTier(card, tier, blockTokens) {
  const share = tier.capacity_blocks ? tier.used_blocks / tier.capacity_blocks : 0;
  say(card.querySelector("h3"), tier.tier);
  const meter = card.querySelector(".meter");
  meter.firstElementChild.className = tierClass(tier.tier);
  meter.firstElementChild.style.width = percent(Math.min(1, share), 2);
  const fill = `${percent(share, 0)} of ${short(tier.capacity_blocks * blockTokens)} tokens`;
  meter.setAttribute("aria-label", `${tier.tier}: ${fill}`);
  const taken = tier.capacity_bytes ? ` · ${bytes(tier.physical_bytes)} of ${bytes(tier.capacity_bytes)}` : "";
  say(card.querySelector(".note"), fill + taken);
  const failures = Object.entries(tier.failed_blocks).filter(([, count]) => count);
  fillFacts(card.querySelector("tbody"), [
    ["hits", `${short(tier.hit_tokens)} tokens`],
    ["loads from it", tier.bytes_per_s ? `${bytes(tier.bytes_per_s)}/s` : "–"],
    ["stored, evicted", `${short(tier.stored_blocks)}, ${short(tier.evicted_blocks)} blocks`],
    ["not yet durable", tier.tier === "disk" ? `${short(tier.not_yet_durable_blocks)} blocks` : "–"],
    ["did not answer", silenceOf(tier), tier.suspended],
    ["failed", failures.map(([reason, count]) => `${short(count)} ${reason}`).join(", ") || "none", failures.length > 0],
  ]);
}

function silenceOf(tier) {
  if (tier.suspended) return "now, so it is left alone";
  return tier.suspensions ? `${whole(tier.suspensions)} times, answers again` : "never";
}

// Rows of a label, a value and whether it is bad news.
function fillFacts(body, rows) {
  while (body.children.length < rows.length) {
    const row = body.insertRow();
    row.append(make("th"), make("td"));
    row.firstElementChild.scope = "row";
  }
  while (body.children.length > rows.length) body.lastElementChild.remove();
  rows.forEach(([label, value, bad], at) => {
    const [head, cell] = body.children[at].children;
    say(head, label);
    say(cell, value);
    cell.classList.toggle("bad", Boolean(bad));
  });
}

function renderMisses(misses) {
  const body = byId("misses").tBodies[0];
  const known = new Set(MISSES.map(([reason]) => reason));
  const others = Object.keys(misses).filter((reason) => reason !== "none" && !known.has(reason)).sort();
  const rows = [...MISSES, ...others.map((reason) => [reason, ""])];
  const most = Math.max(1, ...rows.map(([reason]) => misses[reason]?.tokens ?? 0));
  while (body.children.length < rows.length) body.append(missRow());
  while (body.children.length > rows.length) body.lastElementChild.remove();
  rows.forEach(([reason, meaning], at) => {
    const { tokens, requests } = misses[reason] ?? { tokens: 0, requests: 0 };
    const [head, bar, count] = body.children[at].children;
    say(head.firstElementChild, reason.replaceAll("_", " "));
    say(head.lastElementChild, meaning);
    bar.querySelector("i").style.width = percent(tokens / most, 2);
    bar.querySelector("i").hidden = !tokens;
    say(bar.querySelector("span"), short(tokens));
    say(count, whole(requests));
  });
}

function missRow() {
  const row = make("tr");
  const head = make("th");
  head.scope = "row";
  head.append(make("b"), make("span"));
  const bar = make("td");
  const track = make("div", "track");
  track.append(make("i"), make("span"));
  bar.append(track);
  row.append(head, bar, make("td", "number"));
  return row;
}

function renderMoves(state) {
  const { loads, evictions, tokens, hints } = state;
  const reasons = Object.entries(loads.failed_by_reason).filter(([, count]) => count);
  const said = Object.entries(hints).map(([kind, statuses]) => {
    const parts = Object.entries(statuses).map(([status, count]) => `${whole(count)} ${status}`);
    return `${kind} ${parts.join(", ")}`;
  });
  fillFacts(byId("moves").tBodies[0], [
    ["loaded to the device", `${short(loads.loaded_blocks)} blocks`],
    ["of them ahead of a request", `${short(loads.prefetched_blocks)} blocks`],
    ["of them wasted: gone before any use", `${short(loads.wasted_blocks)} blocks`],
    ["declined: computing was estimated to be faster", `${short(loads.declined_blocks)} blocks`],
    ["failed", reasons.map(([reason, count]) => `${short(count)} ${reason}`).join(", ") || "none", reasons.length > 0],
    ["evicted from the device", `${short(evictions.blocks)} blocks`],
    ["evictions later regretted", `${short(evictions.regretted_tokens)} tokens computed again`],
    ["computed again after preemptions", `${short(tokens.recomputed)} tokens`],
    ["computed once for several siblings", `${short(tokens.shared)} tokens`],
    ["hints", said.join("; ") || "none"],
  ]);
}

function renderLegend(tiers) {
  const box = byId("tier-legend");
  const names = [...tiers.map((tier) => tier.tier), "no tier"];
  if (box.dataset.names === names.join()) return;
  box.dataset.names = names.join();
  box.replaceChildren(
    ...names.map((name) => {
      const item = make("li");
      item.append(make("i", name === "no tier" ? "lost" : tierClass(name)), name);
      return item;
    }),
  );
}
