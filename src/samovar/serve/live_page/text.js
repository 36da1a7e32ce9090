// How numbers read, and the two ways the page touches the document: text and classes. Nothing here or elsewhere makes
// markup from strings: session names are whatever a client sent.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

const byId = (id) => document.getElementById(id);

// Only when it changed: an unchanged page costs no layout.
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

const whole = (value) => grouped.format(Math.round(value));

// Three digits are what one can take in: 873, 12.4K, 1.25M.
function short(value) {
  const units = [[1e9, "G"], [1e6, "M"], [1e3, "K"]];
  for (const [size, unit] of units) {
    if (Math.abs(value) >= size * 0.9995) return `${Number((value / size).toPrecision(3))}${unit}`;
  }
  return Math.abs(value) >= 99.5 || Number.isInteger(value) ? whole(value) : `${Number(value.toPrecision(2))}`;
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (value >= 1023.5 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at ? Number(value.toPrecision(3)) : whole(value)} ${units[at]}`;
}

function seconds(value) {
  if (value < 0) return `-${seconds(-value)}`;
  if (value < 9.95) return `${value.toFixed(1)} s`;
  if (value < 99.5) return `${Math.round(value)} s`;
  const steps = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = steps.findIndex(([, size]) => Math.round(value) >= size);
  const [unit, size] = steps[first];
  const [nextUnit, nextSize] = steps[first + 1];
  const total = Math.round(value / nextSize);
  const major = Math.floor((total * nextSize) / size);
  const minor = total - (major * size) / nextSize;
  return minor ? `${major} ${unit} ${minor} ${nextUnit}` : `${major} ${unit}`;
}

const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}%`;

// A round number not much above `value`.
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

// The classes there are colours for; a tier of another name is shown like "other".
const TIER_CLASSES = ["device", "host", "disk"];
const tierClass = (tier) => (TIER_CLASSES.includes(tier) ? tier : "other");
