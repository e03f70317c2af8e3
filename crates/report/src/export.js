// Buttons: each drawing as SVG, and as PNG with twice its pixels; each command to copy; one view of a chart at a time.
(() => {
  const button = (text, label, action) => {
    const b = document.createElement('button');
    b.type = 'button';
    b.textContent = text;
    b.setAttribute('aria-label', label);
    b.addEventListener('click', action);
    return b;
  };
  const save = (address, name) => {
    const link = document.createElement('a');
    link.href = address;
    link.download = name;
    link.click();
  };
  const address = svg => 'data:image/svg+xml;charset=utf-8,' +
    encodeURIComponent(new XMLSerializer().serializeToString(svg));
  const asPng = (svg, name) => {
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement('canvas');
      canvas.width = 2 * svg.width.baseVal.value;
      canvas.height = 2 * svg.height.baseVal.value;
      canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
      save(canvas.toDataURL('image/png'), name);
    };
    image.src = address(svg);
  };
  document.querySelectorAll('figure').forEach(figure => {
    const svg = figure.querySelector('svg');
    const title = svg.querySelector('title').textContent;
    const both = document.createElement('span');
    both.className = 'save';
    both.append(
      button('SVG', `Download ${title} as SVG`, () => save(address(svg), figure.id + '.svg')),
      button('PNG', `Download ${title} as PNG`, () => asPng(svg, figure.id + '.png')));
    figure.querySelector('figcaption').append(both);
  });
  document.querySelectorAll('pre.command').forEach(command => {
    const text = command.textContent;
    const copy = button('Copy', 'Copy the command', () => navigator.clipboard.writeText(text).then(
      () => { copy.textContent = 'Copied'; }, () => getSelection().selectAllChildren(command)));
    command.before(copy);
  });
  document.querySelectorAll('.views').forEach(views => {
    const figures = [...views.querySelectorAll('figure')];
    if (figures.length < 2) return;
    const bar = document.createElement('div');
    bar.setAttribute('role', 'group');
    bar.setAttribute('aria-label', 'View');
    const show = chosen => figures.forEach((figure, i) => {
      figure.hidden = figure !== chosen;
      bar.children[i].setAttribute('aria-pressed', figure === chosen);
    });
    bar.append(...figures.map(f => button(f.dataset.view, `Show ${f.dataset.view}`, () => show(f))));
    views.prepend(bar);
    show(figures[0]);
  });
  // On paper nothing can be opened.
  addEventListener('beforeprint', () => document.querySelectorAll('details').forEach(part => { part.open = true; }));
})();
