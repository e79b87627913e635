'use strict';
// The memory plan as a picture: time (the ops of a step) to the right, addresses of the arena upward.

// "encoder.layers.0" of "encoder.layers.0.self_attn.in_proj": up to the first number, or two names.
function moduleGroup(module) {
  if (!module) return 'outside modules';
  const parts = module.split('.'), numbered = parts.findIndex(part => /^\d+$/.test(part));
  return parts.slice(0, numbered >= 0 ? numbered + 1 : 2).join('.');
}

class MemoryPicture {
  constructor(memory) {
    this.memory = memory;
    this.groups = [...new Set(memory.nodes.map(node => moduleGroup(node[2])))];
    this.canvas = element('canvas', { role: 'img', tabindex: 0,
      'aria-label': `Memory plan: ${memory.tenants.length} tensors in ${bytes(memory.arena_bytes)}` });
    this.selected = null, this.hovered = null;
    this.canvas.addEventListener('pointermove', event => this.point(event));
    this.canvas.addEventListener('pointerdown', event => this.point(event));
    this.canvas.addEventListener('pointerleave', () => { this.hovered = null, hideTip(), this.draw(); });
    this.legend = element('div', { class: 'legend' });
    this.fillLegend();
    this.node = element('div', { class: 'card memory' }, this.canvas, this.legend);
  }

  color(group) { return moduleColor(this.groups.indexOf(group), this.groups.length); }

  fillLegend() {
    const used = new Map();
    for (const [, , size, first] of this.memory.tenants) {
      const group = moduleGroup(this.memory.nodes[first][2]);
      used.set(group, Math.max(used.get(group) || 0, size));
    }
    this.legend.replaceChildren(...this.groups.filter(group => used.has(group)).map(group => {
      const choose = () => { this.selected = this.selected === group ? null : group, this.draw(), this.fillLegend(); };
      return element('span', { tabindex: 0, role: 'button', 'aria-pressed': this.selected === group,
        style: this.selected && this.selected !== group ? 'opacity: 0.45' : null, onclick: choose,
        onkeydown: event => { if (event.key === 'Enter' || event.key === ' ') event.preventDefault(), choose(); } },
        element('i', { style: `background: ${this.color(group)}` }), group);
    }));
  }

  scales() {
    const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth || 600;
    const height = Math.round(Math.min(460, Math.max(300, width * 0.46)));
    this.canvas.width = Math.round(width * ratio), this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = height + 'px';
    this.left = 56, this.right = width - 4, this.top = 26, this.bottom = height - 22;
    const count = this.memory.nodes.length;
    this.x = node => this.left + node / count * (this.right - this.left);
    this.y = offset => this.bottom - offset / this.memory.arena_bytes * (this.bottom - this.top);
    this.pen = this.canvas.getContext('2d');
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.pen.clearRect(0, 0, width, height);
  }

  draw() {
    this.scales();
    this.drawAxes();
    for (const tenant of this.memory.tenants) this.drawTenant(tenant);
    this.drawLive();
  }

  drawAxes() {
    const { pen, memory } = this;
    pen.font = '11px ' + getComputedStyle(document.body).fontFamily;
    pen.fillStyle = style('--shade');
    pen.fillRect(this.left, this.top, this.right - this.left, this.bottom - this.top);
    pen.fillStyle = style('--quiet'), pen.textAlign = 'right', pen.textBaseline = 'middle';
    for (const size of ticks(0, memory.arena_bytes, 4)) pen.fillText(bytes(size), this.left - 6, this.y(size));
    pen.textBaseline = 'alphabetic';
    this.phases().forEach(([phase, first, last]) => {
      const from = this.x(first), to = this.x(last + 1);
      pen.fillStyle = style('--' + phase);
      pen.fillRect(from, this.top - 7, Math.max(to - from - 1, 1), 3);
      if (to - from > pen.measureText(phase).width + 6) {
        pen.fillStyle = style('--quiet'), pen.textAlign = 'left';
        pen.fillText(phase, from, this.top - 12);
      }
    });
    pen.fillStyle = style('--quiet'), pen.textAlign = 'right';
    pen.fillText(`${memory.nodes.length} ops of ${memory.name}`, this.right, this.bottom + 16);
  }

  // Long stretches of one phase: a single op of another one is not worth a mark.
  phases() {
    const found = [];
    this.memory.nodes.forEach((node, i) => {
      const last = found[found.length - 1];
      if (last && last[0] === node[1]) last[2] = i;
      else found.push([node[1], i, i]);
    });
    return found.filter(([, first, last]) => last - first + 1 >= this.memory.nodes.length * 0.01);
  }

  drawTenant(tenant) {
    const [, offset, size, first, last] = tenant, { pen } = this;
    const x = this.x(first), y = this.y(offset + size);
    const width = Math.max(this.x(last + 1) - x, 1), height = Math.max(this.y(offset) - y, 0.6);
    const group = moduleGroup(this.memory.nodes[first][2]);
    pen.globalAlpha = this.selected && this.selected !== group ? 0.14 : tenant === this.hovered ? 1 : 0.86;
    pen.fillStyle = this.color(group);
    pen.fillRect(x, y, width, height);
    pen.globalAlpha = 1;
    if (width > 3 && height > 3) {
      pen.strokeStyle = style(tenant === this.hovered ? '--ink' : '--card');
      pen.lineWidth = tenant === this.hovered ? 1.5 : 0.5;
      pen.strokeRect(x + 0.25, y + 0.25, width - 0.5, height - 0.5);
    }
  }

  drawLive() {
    const { pen } = this;
    pen.strokeStyle = style('--ink'), pen.lineWidth = 1.1, pen.globalAlpha = 0.75;
    pen.beginPath();
    this.memory.live.forEach((live, i) => {
      pen.lineTo(this.x(i), this.y(live)), pen.lineTo(this.x(i + 1), this.y(live));
    });
    pen.stroke();
    pen.globalAlpha = 1;
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const node = Math.floor((x - this.left) / (this.right - this.left) * this.memory.nodes.length);
    const offset = (this.bottom - y) / (this.bottom - this.top) * this.memory.arena_bytes;
    if (node < 0 || node >= this.memory.nodes.length || offset < 0) {
      if (this.hovered) this.hovered = null, this.draw();
      return hideTip();
    }
    const found = this.memory.tenants.find(([, at, size, first, last]) =>
      first <= node && node <= last && at <= offset && offset < at + size) || null;
    if (found !== this.hovered) this.hovered = found, this.draw();
    const at = this.memory.nodes[node];
    const now = `op ${node}: ${at[0]}${at[2] ? ' in ' + at[2] : ''}, ${at[1]}; ${bytes(this.memory.live[node])} live`;
    if (!found) return showTip(event, [element('b', {}, 'free'), now]);
    const [type, start, size, first, last] = found, maker = this.memory.nodes[first];
    showTip(event, [element('b', {}, `${type}, ${bytes(size)}`),
      `made by ${maker[0]}${maker[2] ? ' in ' + maker[2] : ''} (${maker[3]})`,
      `at ${bytes(start)}, from op ${first} to op ${last}`, now]);
  }
}

// What the planned memory consists of, as one bar.
function memoryBar(items) {
  const total = items.reduce((sum, item) => sum + item.bytes, 0);
  const color = i => moduleColor(i, items.length);
  return element('div', { class: 'card' },
    element('header', {}, element('h3', {}, `${bytes(total)} at the peak`)),
    element('div', { class: 'split', style: 'height: 16px' }, ...items.map((item, i) => element('i', {
      style: `width: ${100 * item.bytes / total}%; background: ${color(i)}`, title: `${item.name}: ${bytes(item.bytes)}` }))),
    element('div', { class: 'legend' }, ...items.map((item, i) =>
      element('span', {}, element('i', { style: `background: ${color(i)}` }), `${item.name} ${bytes(item.bytes)}`))));
}

function addMemory() {
  const runs = data.runs.filter(run => run.memory);
  if (!runs.length) return;
  const place = element('div', {});
  let picture = null;
  const show = index => {
    picture = new MemoryPicture(runs[index].memory);
    place.replaceChildren(...(runs[index].items ? [memoryBar(runs[index].items), element('p', {})] : []), picture.node);
    picture.draw();
  };
  const choice = runs.length > 1 ? element('div', { class: 'bar' }, element('label', {}, 'Run', element('select',
    { id: 'memory-run', onchange: event => show(Number(event.target.value)) },
    ...runs.map((run, i) => element('option', { value: i }, run.name))))) : null;
  section('memory', 'Memory', 'Every tensor of a step in the arena: its place upward, its life to the right, colored by ' +
    'module; the line is what is in use. All of it was known before the first step. Point at a tensor to see what it is.',
    choice, place);
  show(0);
  redraws.push(() => { picture.fillLegend(), picture.draw(); });
}
