// Two buttons at each figure: the drawing as SVG, and as PNG with twice its pixels.
(() => {
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
    const button = (text, action) => {
      const b = document.createElement('button');
      b.textContent = text;
      b.setAttribute('aria-label', `Download ${figure.id} as ${text}`);
      b.addEventListener('click', action);
      figure.querySelector('figcaption').append(b);
    };
    button('SVG', () => save(address(svg), figure.id + '.svg'));
    button('PNG', () => asPng(svg, figure.id + '.png'));
  });
  // On paper nothing can be opened.
  addEventListener('beforeprint', () => document.querySelectorAll('details').forEach(part => { part.open = true; }));
})();
