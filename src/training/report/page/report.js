'use strict';
// The page from top to bottom.

function addRuns() {
  const runs = document.getElementById('runs');
  if (data.runs.length < 2) return;
  data.runs.forEach((run, index) => {
    const chip = element('button', { class: 'chip', type: 'button', 'aria-pressed': 'true', onclick: () => {
      view.hidden.has(index) ? view.hidden.delete(index) : view.hidden.add(index);
      chip.setAttribute('aria-pressed', String(!view.hidden.has(index)));
      charts.forEach(chart => chart.draw());
    } }, element('i', { style: `background: ${runColor(index)}` }), run.name);
    runs.append(chip);
  });
}

function last(list) { return list && list.length ? list[list.length - 1] : null; }

// The evaluation that the run's metric calls the best, and the metric's name.
function bestEvaluation(run) {
  const name = (run.config['train.metric'] || '').replaceAll('"', ''), values = run.valid[name];
  const figures = values && values.some(value => value !== null) ? values : run.valid.loss;
  if (!figures || !figures.length) return null;
  const sign = figures === values ? 1 : -1;
  let best = figures.findIndex(value => value !== null);
  if (best < 0) return null;
  // Equal figures are told apart by the loss, as training does.
  figures.forEach((value, i) => {
    if (value === null) return;
    const more = sign * (value - figures[best]);
    if (more > 0 || (more === 0 && run.valid.loss[i] < run.valid.loss[best])) best = i;
  });
  return { index: best, name: figures === values ? name : 'validation loss', value: figures[best], step: run.valid.step[best] };
}

function addFacts() {
  if (data.runs.length !== 1) return;
  const run = data.runs[0], best = bestEvaluation(run), facts = [];
  const fact = (value, what) => facts.push(element('div', { class: 'fact' }, element('b', {}, value), element('span', {}, what)));
  if (best) fact(number(best.value), `best ${best.name}, step ${best.step}`);
  if (run.train.step.length) {
    fact(number(last(run.train.step), 9), 'steps');
    fact(number(last(run.train.loss)), 'last training loss');
    const speed = Object.keys(run.train).find(name => name.endsWith('_per_second'));
    if (speed) fact(number(median(run.train[speed]), 3), speed.replaceAll('_', ' '));
  }
  if (run.items) fact(bytes(run.items.reduce((sum, item) => sum + item.bytes, 0)), 'memory, as planned');
  if (run.parameters) fact(number(run.parameters), 'parameters');
  document.getElementById('main').append(element('div', { class: 'facts' }, ...facts));
}

function median(values) {
  const sorted = values.filter(value => value !== null).sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

function addEvaluations() {
  const several = data.runs.length > 1, rows = [];
  const names = [...new Set(data.runs.flatMap(run => Object.keys(run.valid)))].filter(name =>
    !['step', 'learning_rate', 'grad_norm', 'memory_mb', 'seconds'].includes(name) && !name.endsWith('_per_second'));
  for (const run of data.runs) {
    const best = bestEvaluation(run);
    run.valid.step.forEach((step, i) => {
      const kind = best && best.index === i ? 'number best' : 'number';
      rows.push([...(several ? [run.name] : []), element('td', { class: kind }, number(step, 9)),
        ...names.map(name => element('td', { class: kind }, number(run.valid[name] ? run.valid[name][i] : null)))]);
    });
  }
  if (!rows.length) return;
  const shown = table([...(several ? ['Run'] : []), 'Step', ...names.map(name => name.replaceAll('_', ' '))], rows,
    [...(several ? [''] : []), 'number', ...names.map(() => 'number')]);
  section('evaluations', 'Evaluations', 'On the validation examples; the best of each run is set in bold.',
    rows.length > 12 ? element('details', {}, element('summary', {}, `All ${rows.length} evaluations`), shown) : shown);
}

// Of the best evaluation: the scores by class, and what was taken for what.
function addClasses() {
  for (const run of data.runs.filter(run => run.classes)) {
    const { classes, confusion, left_out: leftOut, ...means } = run.classes, names = Object.keys(classes);
    const row = ([name, scores]) => [name, ...['precision', 'recall', 'f1'].map(key => number(scores[key])), number(scores.support, 9)];
    const content = [table(['Class', 'Precision', 'Recall', 'F1', 'Support'],
      [...Object.entries(classes), ...Object.entries(means)].map(row), ['', 'number', 'number', 'number', 'number'])];
    if (leftOut) content.push(element('p', {}, `... and ${leftOut} more classes, which are in classes.json`));
    if (confusion)
      content.push(element('p', {}, 'A row for each class, a column for what was predicted:'),
        table(['', ...names], confusion.map((counts, i) => [names[i], ...counts.map((count, k) =>
          element('td', { class: i === k ? 'number best' : 'number' }, number(count, 9)))]), ['', ...names.map(() => 'number')]));
    section('classes', data.runs.length > 1 ? `Classes of ${run.name}` : 'Classes', 'Of the best evaluation.', ...content);
  }
}

function addSamples() {
  const runs = data.runs.filter(run => run.samples.length);
  if (!runs.length) return;
  const place = element('div', {});
  const options = runs.flatMap((run, r) => run.samples.map((sample, i) => ({ run, sample,
    label: (runs.length > 1 ? run.name + ', ' : '') + 'step ' + sample.step, isLast: r === 0 && i === run.samples.length - 1 })));
  const show = option => place.replaceChildren(...option.sample.texts.map(text =>
    element('div', { class: 'card', style: 'padding: 0; margin-bottom: 10px' }, element('pre', {}, text))));
  const choice = element('select', { id: 'sample-step', onchange: event => show(options[Number(event.target.value)]) },
    ...options.map((option, i) => element('option', { value: i, selected: option.isLast }, option.label)));
  section('samples', 'Samples', 'What the model made of its inputs at an evaluation.',
    element('div', { class: 'bar' }, element('label', {}, 'At', choice)), place);
  show(options[Number(choice.value)]);
}

function addConfiguration() {
  const keys = [...new Set(data.runs.flatMap(run => Object.keys(run.config)))];
  if (!keys.length) return;
  const value = (run, key) => run.config[key] ?? '–';
  const differs = key => data.runs.some(run => value(run, key) !== value(data.runs[0], key));
  const head = ['Key', ...data.runs.map(run => run.name)];
  const row = key => [element('td', { class: 'mono' }, key), ...data.runs.map(run => element('td', { class: 'mono' }, value(run, key)))];
  const different = keys.filter(differs), content = [];
  if (data.runs.length > 1)
    content.push(different.length ? table(head, different.map(row)) : element('p', {}, 'All runs have the same configuration.'));
  content.push(element('details', { id: 'all-keys' }, element('summary', {}, 'All keys'),
    table(data.runs.length > 1 ? head : ['Key', 'Value'], keys.map(row))));
  section('configuration', 'Configuration', data.runs.length > 1 ? 'The keys in which the runs differ.' : null, ...content);
}

function addSystem() {
  const runs = data.runs.filter(run => Object.keys(run.system).length);
  if (!runs.length) return;
  const keys = [...new Set(runs.flatMap(run => Object.keys(run.system)))];
  section('system', 'System', null, table(['', ...runs.map(run => (data.runs.length > 1 ? run.name : ''))],
    keys.map(key => [element('td', { class: 'same' }, key), ...runs.map(run => String(run.system[key] ?? '–'))])));
}

document.getElementById('subtitle').textContent = data.subtitle;
startTheme();
addRuns();
addFacts();
addCurves();
addEvaluations();
addClasses();
addMemory();
addLayers();
addSamples();
addConfiguration();
addSystem();
