function render({ model, el }) {
  const bar = document.createElement('form'), page = document.createElement('div');
  const fields = {};
  let count = 0, isBusy = false, waiting = null;
  bar.className = 'mrsa-bar';
  function send(values) {
    if (isBusy) { waiting = values; return; }
    isBusy = true;
    model.set('asked', { values, count: count += 1 });  // a count, since equal values are no change
    model.save_changes();
  }
  function change(name, value) {
    send({ ...model.get('values'), ...waiting, [name]: value });
  }
  model.get('controls').forEach(one => {
    const label = document.createElement('label'), said = document.createElement('output');
    const isChoice = one.options.length > 0;
    const field = document.createElement(isChoice ? 'select' : 'input');
    label.append(one.label, field);
    one.options.forEach(value => { field.append(new Option(value, value)); });
    if (!isChoice) {
      Object.assign(field, { type: 'range', min: one.low, max: one.high, step: one.step });
      label.append(said);
    }
    field.name = one.name;
    field.addEventListener('input', () => {
      said.textContent = field.value;
      change(one.name, isChoice ? field.value : Number(field.value));
    });
    fields[one.name] = [field, said];
    bar.append(label);
  });
  function button(text, act) {
    const own = document.createElement('button');
    own.type = 'button'; own.textContent = text;
    own.addEventListener('click', () => act(own));
    bar.append(own);
  }
  if ('seed' in model.get('values')) {
    button('another seed', () => change('seed', model.get('values').seed + 1));
  }
  if (model.get('code')) {
    button('copy the Python', own => {
      navigator.clipboard.writeText(model.get('code')).then(
        () => { own.textContent = 'copied'; }, () => { own.textContent = 'select it below'; });
    });
  }
  function show() {
    const values = model.get('values');
    page.innerHTML = model.get('html');
    page.querySelectorAll('script').forEach(old => {
      const own = document.createElement('script');
      own.textContent = old.textContent;
      old.replaceWith(own);
    });
    isBusy = false;
    if (waiting) { const next = waiting; waiting = null; send(next); return; }
    Object.entries(fields).forEach(([name, [field, said]]) => {
      field.value = said.textContent = values[name];
    });
  }
  model.on('change:shown', show);
  el.append(bar, page);
  show();
}
export default { render };
