// How the timeline is drawn on its canvas. Colours are those of the style sheet, resolved where they are used.

const LEAST_LABEL = 34; // pixels
const LETTER = 6.4; // pixels

class TimelineDrawing {
  constructor(timeline) {
    this.timeline = timeline;
    this.probe = timeline.canvas.parentElement.appendChild(element("span", { hidden: "" }));
    this.colors = new Map();
  }

  draw() {
    const { canvas, step } = this.timeline;
    const [width, height, scale] = [this.timeline.width(), AXIS + THIN + LANE * (step.names.length - 1) + 4, devicePixelRatio || 1];
    canvas.style.height = `${height}px`;
    Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
    this.colors.clear();
    this.pen = canvas.getContext("2d");
    this.pen.scale(scale, scale);
    this.pen.font = "12px system-ui, sans-serif";
    this.pen.textBaseline = "middle";
    this.axis(width, height);
    this.clipped(this.timeline.step.gutter, width, height, () => step.byLane.forEach((spans, lane) => this.lane(spans, lane)));
    this.names();
  }

  clipped(left, right, height, act) {
    this.pen.save();
    this.pen.beginPath();
    this.pen.rect(left, 0, right - left, height);
    this.pen.clip();
    act();
    this.pen.restore();
  }

  color(name) {
    if (!this.colors.has(name)) {
      this.probe.style.color = `var(--${name})`;
      this.colors.set(name, getComputedStyle(this.probe).color);
    }
    return this.colors.get(name);
  }

  axis(width, height) {
    const { from, to } = this.timeline;
    const every = roundStep((to - from) / Math.max((width - this.timeline.step.gutter) / 110, 1));
    for (let time = Math.ceil(from / every) * every; time <= to; time += every) {
      const x = this.timeline.xOf(time);
      this.fill("rule", x, AXIS - 4, 1, height - AXIS + 4);
      this.text("quiet", timeText(time), Math.min(x + 3, width - 48), AXIS / 2);
    }
  }

  top(lane) {
    return lane === 0 ? AXIS : AXIS + THIN + LANE * (lane - 1);
  }

  names() {
    this.timeline.step.names.forEach((name, lane) => {
      const height = lane === 0 ? THIN : LANE;
      this.text("quiet", cutTo(name, this.timeline.step.gutter - 10), 2, this.top(lane) + height / 2);
    });
  }

  lane(spans, lane) {
    const { from, to } = this.timeline;
    for (let at = Math.max(0, lastBefore(spans, from)); at < spans.length && spans[at].start < to; at += 1) this.span(spans[at], lane);
  }

  span(span, lane) {
    const [left, right] = [this.timeline.xOf(span.start), this.timeline.xOf(span.end)];
    const width = Math.max(right - left - (right - left > 3 ? 0.5 : 0), 0.6);
    this.pen.globalAlpha = this.timeline.isMarked(span) ? 1 : 0.18;
    if (span.place) this.fill(PHASES[span.place.phase], left, this.top(0) + 1, width, THIN - 3);
    this.fill(this.colorOf(span), left, this.top(lane) + 1, width, LANE - 3);
    if (width > LEAST_LABEL) this.text("ink", cutTo(labelOf(span), width - 6), Math.max(left, this.timeline.step.gutter) + 3, this.top(lane) + LANE / 2);
    this.pen.globalAlpha = 1;
    if (span === this.timeline.chosen) this.frame(left, this.top(lane) + 1, width, LANE - 3);
  }

  colorOf(span) {
    const { colors, causes } = this.timeline.step;
    if (span.kind === "idle") return `cause-${causes.get(span.cause)?.at ?? "others"}`;
    return `line-${colors.get(span.line)?.at ?? "others"}`;
  }

  fill(color, left, top, width, height) {
    this.pen.fillStyle = this.color(color);
    this.pen.fillRect(left, top, width, height);
  }

  frame(left, top, width, height) {
    this.pen.strokeStyle = this.color("ink");
    this.pen.lineWidth = 2;
    this.pen.strokeRect(left, top, Math.max(width, 2), height);
  }

  text(color, text, left, middle) {
    this.pen.fillStyle = this.color(color);
    this.pen.fillText(text, left, middle);
  }
}

function labelOf(span) {
  if (span.kind === "idle") return span.cause;
  return span.line ? `${shortLine(span.line)} ${span.line.code}` : span.site.kernel.short;
}

function cutTo(text, width) {
  const room = Math.floor(width / LETTER);
  return text.length <= room ? text : `${text.slice(0, Math.max(room - 1, 0))}…`;
}

// The next of 1, 2, 5, 10, ... ns.
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map(each => each * power).find(each => each >= least);
}
