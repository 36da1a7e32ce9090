// The two charts: tokens per second as three strips, each with a scale of its own since cached tokens outnumber
// generated ones by hundreds; and the hit rate under its ceiling, with what was lost between them shaded.

const KINDS = ["cached", "computed", "generated"];

function tokensChart(history) {
  const canvas = byId("tokens-chart");
  const series = () => KINDS.map((kind) => ({ kind, values: history.rates(kind) }));

  function draw(context, width, height, cursor) {
    const strip = (height - PLOT.bottom) / KINDS.length;
    series().forEach(({ kind, values }, row) => {
      const top = row * strip + 10;
      const bottom = (row + 1) * strip;
      const highest = Math.max(...values.map((value) => value ?? 0));
      const most = roundUp(highest);
      drawLevel(context, width, top, highest ? short(most) : "");
      drawLevel(context, width, bottom, "");
      context.fillStyle = colour(kind);
      values.forEach((value, index) => {
        if (!value) return;
        const left = bucketX(width, index) + 0.5;
        const tall = Math.max(1, ((bottom - top) * value) / most);
        // The last bar is still growing.
        context.globalAlpha = index === BUCKETS - 1 ? 0.55 : 1;
        context.fillRect(left, bottom - tall, Math.max(1, bucketX(width, index + 1) - left - 0.5), tall);
      });
      context.globalAlpha = 1;
    });
    drawUnseen(context, width, height, history.seen_s);
    drawTimes(context, width, height);
    drawCursor(context, width, height, cursor);
  }

  function told(index) {
    const parts = series().map(({ kind, values }) => `${kind} ${values[index] === null ? "–" : short(values[index])}`);
    return `${seconds(ago(index))} ago: ${parts.join(", ")} tokens/s`;
  }

  const chart = new Chart(canvas, byId("tokens-said"), draw, told);
  return () => {
    const parts = KINDS.map((kind) => `${kind} ${short(history.now(kind) ?? 0)}`);
    canvas.setAttribute("aria-label", `Tokens per second over five minutes; now ${parts.join(", ")}`);
    chart.redraw();
  };
}

function hitsChart(history) {
  const canvas = byId("hits-chart");

  function draw(context, width, height, cursor) {
    const top = 8;
    const bottom = height - PLOT.bottom - 2;
    const rate = history.shares("cached");
    const ceiling = history.shares("ceiling");
    const floor = floorOf(rate);
    const y = (share) => bottom - ((bottom - top) * (Math.min(1, share) - floor)) / (1 - floor);
    for (const level of [0, 0.25, 0.5, 0.75, 1].map((part) => floor + part * (1 - floor))) drawLevel(context, width, y(level), percent(level, Number.isInteger(Math.round(level * 1e4) / 100) ? 0 : 1));
    shade(context, width, y, rate, ceiling);
    line(context, width, y, ceiling, colour("ceiling"), [5, 4]);
    line(context, width, y, rate, colour("rate"), []);
    drawUnseen(context, width, height, history.seen_s);
    drawTimes(context, width, height);
    drawCursor(context, width, height, cursor);
  }

  function told(index) {
    const [rate, ceiling] = [history.shares("cached")[index], history.shares("ceiling")[index]];
    if (rate === null) return `${seconds(ago(index))} ago: no prompts in the minute before`;
    return `${seconds(ago(index))} ago: ${percent(rate)} of prompt tokens cached, infinite cache ${percent(ceiling)}`;
  }

  const chart = new Chart(canvas, byId("hits-said"), draw, told);
  return () => {
    const [rate, ceiling] = [history.shares("cached").at(-1), history.shares("ceiling").at(-1)];
    say(byId("now-rate"), rate === null ? "–" : percent(rate));
    say(byId("now-ceiling"), ceiling === null ? "–" : percent(ceiling));
    const text = rate === null ? "no prompts" : `${percent(rate)}, infinite cache ${percent(ceiling)}`;
    canvas.setAttribute("aria-label", `Hit rate over five minutes; last minute: ${text}`);
    chart.redraw();
  };
}

// Where the scale begins: high rates differ where a scale from 0 shows nothing.
function floorOf(values) {
  if (values.every((value) => value === null)) return 0;
  const least = Math.min(...values.map((value) => value ?? 1));
  return [0.9, 0.8, 0.6, 0].find((floor) => least >= floor + 0.02) ?? 0;
}

const middle = (width, index) => (bucketX(width, index) + bucketX(width, index + 1)) / 2;

function line(context, width, y, values, style, dash) {
  context.strokeStyle = style;
  context.fillStyle = style;
  context.lineWidth = 2;
  context.setLineDash(dash);
  context.beginPath();
  values.forEach((value, index) => {
    if (value === null) return;
    if ((values[index - 1] ?? null) === null) context.moveTo(middle(width, index), y(value));
    else context.lineTo(middle(width, index), y(value));
    // A point with no neighbours would not show.
    if ((values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null) {
      context.fillRect(middle(width, index) - 2, y(value) - 2, 4, 4);
    }
  });
  context.stroke();
  context.setLineDash([]);
}

function shade(context, width, y, low, high) {
  context.fillStyle = colour("computed");
  context.globalAlpha = 0.14;
  low.forEach((value, index) => {
    const next = low[index + 1] ?? null;
    if (value === null || next === null) return;
    context.beginPath();
    context.moveTo(middle(width, index), y(value));
    context.lineTo(middle(width, index + 1), y(next));
    context.lineTo(middle(width, index + 1), y(high[index + 1]));
    context.lineTo(middle(width, index), y(high[index]));
    context.fill();
  });
  context.globalAlpha = 1;
}
