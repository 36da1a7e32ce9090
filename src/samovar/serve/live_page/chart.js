// A canvas that is drawn by hand: sharp on every screen, redrawn when its size or the colours change, with a cursor for
// pointer and arrow keys.

const colours = () => getComputedStyle(document.documentElement);
const colour = (name) => colours().getPropertyValue(`--${name}`).trim();

class Chart {
  // `draw(context, width, height, cursor)`; `told(index)`: the sentence for a bucket, null for none under the cursor.
  constructor(canvas, said, draw, told) {
    this.canvas = canvas;
    this.said = said;
    this.idle = said.textContent;
    this.draw = draw;
    this.told = told;
    this.cursor = null;
    new ResizeObserver(() => this.redraw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    canvas.addEventListener("pointermove", (event) => this.move(this.at(event)));
    canvas.addEventListener("pointerleave", () => this.move(null));
    canvas.addEventListener("blur", () => this.move(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  at(event) {
    const { left, width } = this.canvas.getBoundingClientRect();
    return clamped(Math.floor(((event.clientX - left - PLOT.left) / (width - PLOT.left - PLOT.right)) * BUCKETS));
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12 };
    const here = this.cursor ?? BUCKETS - 1;
    if (event.key in steps) this.move(clamped(here + steps[event.key]));
    else if (event.key === "Home") this.move(0);
    else if (event.key === "End") this.move(BUCKETS - 1);
    else if (event.key === "Escape") this.move(null);
    else return;
    event.preventDefault();
  }

  move(cursor) {
    if (cursor === this.cursor) return;
    this.cursor = cursor;
    this.redraw();
  }

  redraw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const scale = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "12px system-ui, sans-serif";
    this.draw(context, width, height, this.cursor);
    say(this.said, this.cursor === null ? this.idle : this.told(this.cursor));
  }
}

const PLOT = { left: 46, right: 8, bottom: 18 };
const clamped = (index) => Math.max(0, Math.min(BUCKETS - 1, index));

function bucketX(width, index) {
  return PLOT.left + ((width - PLOT.left - PLOT.right) * index) / BUCKETS;
}

function drawTimes(context, width, height) {
  context.fillStyle = colour("muted");
  context.textBaseline = "bottom";
  const minutesShown = width < 460 ? [4, 3, 2, 1, 0] : [5, 4, 3, 2, 1, 0];
  for (const minutes of minutesShown) {
    const x = bucketX(width, BUCKETS - (minutes * 60) / BUCKET_S);
    context.textAlign = minutes === 5 ? "left" : minutes === 0 ? "right" : "center";
    context.fillText(minutes ? `-${minutes} min` : "now", x, height);
  }
}

function drawLevel(context, width, y, text) {
  context.strokeStyle = colour("line");
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(PLOT.left, Math.round(y) + 0.5);
  context.lineTo(width - PLOT.right, Math.round(y) + 0.5);
  context.stroke();
  context.fillStyle = colour("muted");
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText(text, PLOT.left - 6, y);
}

function drawCursor(context, width, height, cursor) {
  if (cursor === null) return;
  context.fillStyle = colour("ink");
  context.globalAlpha = 0.35;
  context.fillRect(Math.round((bucketX(width, cursor) + bucketX(width, cursor + 1)) / 2), 0, 1, height - PLOT.bottom);
  context.globalAlpha = 1;
}

// What was before the page was opened is not known: without a word it would be taken for silence.
function drawUnseen(context, width, height, seen_s) {
  const unseen = BUCKETS - Math.ceil(seen_s / BUCKET_S);
  if (unseen <= 0) return;
  const right = bucketX(width, unseen);
  context.fillStyle = colour("line");
  context.globalAlpha = 0.4;
  context.fillRect(PLOT.left, 0, right - PLOT.left, height - PLOT.bottom);
  context.globalAlpha = 1;
  if (right - PLOT.left < 150) return;
  context.fillStyle = colour("muted");
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(`collecting, ${seconds(seen_s)} so far`, (PLOT.left + right) / 2, 34);
}
