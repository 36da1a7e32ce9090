// One row per conversation: a bar of its tokens by the fastest tier that has them, and what is expected of it. Rows stay
// where they are while nothing is added: a list that is sorted anew every second cannot be read.

class Sessions {
  constructor(list, template) {
    this.list = list;
    this.template = template;
    this.rows = new Map();
    this.arrived = new Map();
    this.count = 0;
    this.order = "arrival";
  }

  // `tiers`: names, fastest first.
  render(sessions, tiers) {
    // Answers are latest first, so the last one came first.
    for (const session of sessions.toReversed()) {
      if (!this.arrived.has(session.stream)) this.arrived.set(session.stream, (this.count += 1));
    }
    const scale = roundUp(Math.max(1, ...sessions.map((session) => session.num_tokens)));
    const wanted = this.sorted(sessions);
    wanted.forEach(([session, depth], at) => {
      const row = this.rows.get(session.stream) ?? this.add(session.stream);
      this.fill(row, session, depth, tiers, scale);
      if (this.list.children[at] !== row) this.list.insertBefore(row, this.list.children[at] ?? null);
    });
    this.forget(new Set(sessions.map((session) => session.stream)));
    return scale;
  }

  // Pairs of a session and its depth, sub-agents right after their parents.
  sorted(sessions) {
    const children = new Map();
    const known = new Set(sessions.map((session) => session.stream));
    for (const session of sessions) {
      const parent = known.has(session.parent_stream) ? session.parent_stream : null;
      children.set(parent, [...(children.get(parent) ?? []), session]);
    }
    const found = [];
    const walk = (session, depth) => {
      found.push([session, depth]);
      this.inOrder(children.get(session.stream) ?? [], children, depth + 1).forEach((one) => walk(one, depth + 1));
    };
    this.inOrder(children.get(null) ?? [], children, 0).forEach((one) => walk(one, 0));
    return found;
  }

  inOrder(sessions, children, depth) {
    const arrived = (session) => this.arrived.get(session.stream);
    const family = (session) => {
      const below = children.get(session.stream) ?? [];
      return session.num_tokens + below.reduce((sum, one) => sum + family(one), 0);
    };
    const returns = (session) => (session.running ? -1 : session.return_in_s ?? Infinity);
    const keys = {
      arrival: (session) => (depth ? arrived(session) : -arrived(session)),
      size: (session) => -family(session),
      return: returns,
    };
    const key = keys[this.order];
    return [...sessions].sort((a, b) => (key(a) === key(b) ? arrived(b) - arrived(a) : key(a) - key(b)));
  }

  add(stream) {
    const row = this.template.content.firstElementChild.cloneNode(true);
    this.rows.set(stream, row);
    return row;
  }

  forget(kept) {
    for (const [stream, row] of this.rows) {
      if (kept.has(stream)) continue;
      row.remove();
      this.rows.delete(stream);
      this.arrived.delete(stream);
    }
  }

  fill(row, session, depth, tiers, scale) {
    row.classList.toggle("child", depth > 0);
    row.classList.toggle("deep", depth > 1);
    row.classList.toggle("running", session.running);
    const name = session.session_id || "no session id";
    const bdi = row.querySelector("bdi");
    say(bdi, name);
    if (bdi.title !== name) bdi.title = name;
    say(row.querySelector(".kind"), kindOf(session, depth));
    say(row.querySelector(".size"), short(session.num_tokens));
    say(row.querySelector(".state"), session.running ? "running" : `idle ${rough(session.idle_s)}`);
    const why = row.querySelector(".text");
    say(why, session.why || (session.running ? "" : "nothing expected"));
    if (why.title !== why.textContent) why.title = why.textContent;
    say(row.querySelector(".when"), whenOf(session));
    fillBar(row.querySelector(".bar"), name, session, tiers, scale);
  }
}

function kindOf(session, depth) {
  if (depth) return "sub-agent";
  if (session.parent_session_id && session.parent_session_id !== session.session_id) return "sub-agent of one not listed";
  return "";
}

function whenOf(session) {
  const parts = [];
  if (session.return_in_s !== null && !session.running) parts.push(session.return_in_s < 0.5 ? "due now" : `back in about ${rough(session.return_in_s)}`);
  if (session.kept_for_s !== null) parts.push(`kept for ${rough(session.kept_for_s)}`);
  return parts.join(" · ");
}

// For what changes while one reads it.
function rough(value) {
  if (value >= 99.5 && value < 5370) return `${Math.round(value / 60)} min`;
  return seconds(value < 10 ? Math.round(value) : value).replace(".0 s", " s");
}

function fillBar(bar, name, session, tiers, scale) {
  const names = [...new Set([...tiers, ...Object.keys(session.fastest)])];
  const parts = names.map((tier) => [tierClass(tier), session.fastest[tier] ?? 0, tier]);
  parts.push(["lost", session.lost_tokens, "no tier"]);
  while (bar.children.length < parts.length) bar.append(make("i"));
  while (bar.children.length > parts.length) bar.lastElementChild.remove();
  parts.forEach(([kind, tokens], at) => {
    const piece = bar.children[at];
    if (piece.className !== kind) piece.className = kind;
    piece.hidden = !tokens;
    piece.style.width = `calc(${(100 * tokens) / scale}% - 1px)`;
    piece.style.minWidth = tokens ? "2px" : "0";
  });
  const said = parts.filter(([, tokens]) => tokens).map(([, tokens, tier]) => `${whole(tokens)} on ${tier}`);
  const text = `${name}: ${said.join(", ").replace("on no tier", "in no tier") || "no full block yet"}`;
  if (bar.title !== text) {
    bar.title = text;
    bar.setAttribute("aria-label", text);
  }
}
