'use strict';
// Where the time of a step goes: by phase, as a tree of modules with forward and backward side by side, and op by op.

const phases = ['forward', 'both', 'backward', 'update', 'evaluation'];
const phaseTitle = phase => (phase === 'both' ? 'loss with its gradient' : phase);

function moduleTree(rows) {
  const root = { name: 'the whole step', path: '', children: new Map(), time: {}, total: 0, flops: 0, kept: 0, depth: 0 };
  for (const row of rows) {
    if (row.phase === 'evaluation') continue;
    let node = root;
    // Of the three products of a loss with its gradient one is forward.
    const times = row.phase === 'both' ? { forward: row.ms / 3, backward: 2 * row.ms / 3 } : { [row.phase]: row.ms };
    const add = () => {
      for (const [phase, ms] of Object.entries(times)) node.time[phase] = (node.time[phase] || 0) + ms;
      node.total += row.ms, node.flops += row.flops, node.kept += row.kept_bytes;
    };
    add();
    for (const part of row.module ? row.module.split('.') : ['outside modules']) {
      if (!node.children.has(part))
        node.children.set(part, { name: part, path: (node.path ? node.path + '.' : '') + part, children: new Map(), time: {},
          total: 0, flops: 0, kept: 0, depth: node.depth + 1 });
      node = node.children.get(part);
      add();
    }
  }
  return root;
}

class LayerTable {
  constructor(profile) {
    this.profile = profile, this.open = new Set(['']);
    this.root = moduleTree(profile.rows);
    this.node = element('div', {});
    this.draw();
  }

  draw() {
    const rows = [];
    const visit = node => {
      rows.push(this.row(node));
      if (this.open.has(node.path))
        [...node.children.values()].sort((a, b) => b.total - a.total).forEach(visit);
    };
    visit(this.root);
    this.node.replaceChildren(table(['Module', 'ms', 'Forward', 'Backward', 'B / F', 'Share of peak', 'Kept', ''], rows,
      ['', 'number', 'number', 'number', 'number', 'number', 'number', ''], 'tree'));
  }

  row(node) {
    const forward = node.time.forward || 0, backward = node.time.backward || 0, peak = this.profile.peak_gflops * 1e9;
    const toggle = () => {
      this.open.has(node.path) ? this.open.delete(node.path) : this.open.add(node.path);
      this.draw();
    };
    const isOpen = this.open.has(node.path);
    const name = element('td', { style: `padding-left: ${12 + 16 * node.depth}px` }, node.children.size
      ? element('button', { type: 'button', 'aria-expanded': isOpen, 'aria-label': node.name, onclick: toggle }, isOpen ? '▾' : '▸')
      : element('button', { type: 'button', disabled: '', style: 'visibility: hidden' }), node.name);
    const bar = element('div', { class: 'split', style: `width: ${Math.max(2, 100 * node.total / this.root.total)}%` },
      ...phases.filter(phase => node.time[phase]).map(phase => element('i', {
        style: `width: ${100 * node.time[phase] / node.total}%; background: var(--${phase})`,
        title: `${phase} ${milliseconds(node.time[phase])}` })));
    return [name, number(node.total, 3), forward ? number(forward, 3) : '–', backward ? number(backward, 3) : '–',
      forward && backward ? number(backward / forward, 2) : '–',
      peak && node.flops ? percent(node.flops / (node.total * 1e-3) / peak) : '–', node.kept ? bytes(node.kept) : '–',
      element('td', { style: 'width: 22%' }, bar)];
  }
}

function phaseBar(profile) {
  const time = {};
  for (const row of profile.rows) time[row.phase] = (time[row.phase] || 0) + row.ms;
  const parts = phases.filter(phase => time[phase] && phase !== 'evaluation').map(phase => [phase, time[phase]]);
  for (const part of ['data', 'sharing']) if (profile[part + '_ms'] > 0) parts.push([part, profile[part + '_ms']]);
  const total = parts.reduce((sum, part) => sum + part[1], 0);
  const color = phase => ({ data: 'var(--c5)', sharing: 'var(--c6)' }[phase] || `var(--${phase})`);
  return element('div', { class: 'card' },
    element('header', {}, element('h3', {}, `${milliseconds(profile.step_ms)} a step`),
      element('span', { class: 'quiet' }, `steps ${profile.first_step} to ${profile.last_step}; ${profile.machine}`)),
    element('div', { class: 'split', style: 'height: 16px' }, ...parts.map(([phase, ms]) =>
      element('i', { style: `width: ${100 * ms / total}%; background: ${color(phase)}`,
        title: `${phaseTitle(phase)} ${milliseconds(ms)}` }))),
    element('div', { class: 'legend' }, ...parts.map(([phase, ms]) => element('span', {},
      element('i', { style: `background: ${color(phase)}` }), `${phaseTitle(phase)} ${milliseconds(ms)}`))));
}

function opTable(profile) {
  const rows = profile.rows.slice(0, 20).map(row => [row.phase, row.op, row.module || '–', row.source, number(row.ms, 3),
    percent(row.ms / profile.step_ms), percent(row.share_of_peak), percent(row.share_of_bandwidth)]);
  return element('details', {}, element('summary', {}, `The ${rows.length} slowest ops`),
    table(['Phase', 'Op', 'Module', 'Source', 'ms', 'Of the step', 'Of peak', 'Of bandwidth'], rows,
      ['', 'mono', 'mono', 'mono', 'number', 'number', 'number', 'number']));
}

function addLayers() {
  const runs = data.runs.filter(run => run.profile);
  if (!runs.length) return;
  const place = element('div', {});
  const show = index => {
    const profile = runs[index].profile;
    place.replaceChildren(phaseBar(profile), element('p', {}), new LayerTable(profile).node, opTable(profile));
  };
  const choice = runs.length > 1 ? element('div', { class: 'bar' }, element('label', {}, 'Run', element('select',
    { id: 'layers-run', onchange: event => show(Number(event.target.value)) },
    ...runs.map((run, i) => element('option', { value: i }, run.name))))) : null;
  section('layers', 'Time by layer', 'Forward and backward of every module; “kept” is what its forward pass leaves in memory for ' +
    'the backward pass.', choice, place);
  show(0);
}
