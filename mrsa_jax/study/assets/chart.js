(function () {
  function short(v) {
    if (Number.isInteger(v)) { return v.toLocaleString('en-US'); }
    var a = Math.abs(v);
    return a >= 1e4 || a < 1e-4 ? Number(v.toPrecision(4)).toExponential().replace('e+', 'e')
                                : String(Number(v.toPrecision(4)));
  }
  function points(path) {
    var found = [], x = 0, y = 0;
    path.getAttribute('d').replace(/([MHV])([^MHV]*)/g, function (_, kind, rest) {
      var n = rest.trim().split(/\s+/).map(Number);
      if (kind === 'H') { x = n[0]; found.push([x, y, 1]); }
      else if (kind === 'V') { y = n[0]; found[found.length - 1][1] = y; }
      else {
        for (var k = 0; k < n.length; k += 2) { x = n[k]; y = n[k + 1]; found.push([x, y, k > 0]); }
      }
    });
    return found;
  }
  function at(own, x, step) {
    for (var k = own.length - 1; k >= 0; k--) {
      if (own[k][0] > x) { continue; }
      if (own[k][0] === x || step && own[k + 1] && own[k + 1][2]) { return own[k][1]; }
      var a = own[k], b = own[k + 1];
      return b && b[2] ? a[1] + (b[1] - a[1]) * (x - a[0]) / (b[0] - a[0]) : null;
    }
    return null;
  }
  function seen(one) { return getComputedStyle(one).display !== 'none'; }
  document.querySelectorAll('.plot').forEach(function (plot) {
    if (plot.dataset.ready) { return; }
    plot.dataset.ready = 'yes';
    var inner = plot.querySelector('svg svg'), box = inner.viewBox.baseVal;
    var logs = plot.dataset.log, whole = 'whole' in plot.dataset, tip = null, cursor = null, now;
    var lines = [].map.call(inner.querySelectorAll('g[data-s]'), function (g) {
      var path = g.querySelector('path:not(.band)');
      return { g: g, own: points(path), step: /[HV]/.test(path.getAttribute('d')) };
    });
    var dots = [].slice.call(plot.querySelectorAll('circle'));
    var xs = [];
    lines.forEach(function (l) { l.own.forEach(function (p) { xs.push(p[0]); }); });
    xs = xs.sort(function (a, b) { return a - b; }).filter(function (x, k) {
      return !k || x !== xs[k - 1];
    });
    function back(v, axis) { return logs.indexOf(axis) < 0 ? v : Math.pow(10, v); }
    function hide() {
      if (tip) { tip.remove(); cursor.remove(); tip = cursor = null; }
      dots.forEach(function (d) { d.classList.remove('near'); });
    }
    function row(css, text) {
      var div = document.createElement('div'), dot = document.createElement('span');
      if (css) { dot.className = 'dot ' + css; div.appendChild(dot); }
      div.appendChild(document.createTextNode(text));
      tip.appendChild(div);
    }
    function open(share) {
      hide();
      tip = document.createElement('div');
      tip.className = 'tip'; tip.setAttribute('role', 'status');
      plot.appendChild(tip);
      cursor = document.createElementNS(inner.namespaceURI, 'line');
      cursor.setAttribute('class', 'cursor'); cursor.setAttribute('y2', '100%');
      cursor.setAttribute('x1', 100 * share + '%'); cursor.setAttribute('x2', 100 * share + '%');
      if (lines.length) { plot.querySelector('svg').appendChild(cursor); }
      tip.style[share > .5 ? 'left' : 'right'] = '0';
    }
    function show(x) {
      now = x;
      open((x - box.x) / box.width);
      row('', plot.dataset.x + ' ' + short(back(x, 'x')));
      lines.forEach(function (l) {
        var y = seen(l.g) ? at(l.own, x, l.step) : null;
        if (y === null) { return; }
        var name = l.g.dataset.n ? ', ' + l.g.dataset.n : '';
        row(l.g.classList[0], l.g.dataset.s + name + ': ' + short(back(y, 'y')));
      });
    }
    function showDot(dot) {
      var words = dot.querySelector('title');
      now = dot;
      open(parseFloat(dot.getAttribute('cx')) / 100);
      dot.classList.add('near');
      row(dot.classList[0], words ? words.textContent : '');
    }
    plot.addEventListener('pointermove', function (event) {
      var r = plot.getBoundingClientRect(), best = null, least = Infinity;
      if (!lines.length) {
        dots.filter(seen).forEach(function (d) {
          var c = d.getBoundingClientRect();
          var far = Math.hypot(c.x + c.width / 2 - event.clientX,
                               c.y + c.height / 2 - event.clientY);
          if (far < least) { least = far; best = d; }
        });
        if (best && least < 60) { showDot(best); } else { hide(); }
        return;
      }
      var x = box.x + box.width * Math.min(1, Math.max(0, (event.clientX - r.x) / r.width));
      if (whole && logs.indexOf('x') < 0) { x = Math.round(x); }
      else {
        xs.forEach(function (one) {
          if (Math.abs(one - x) < least) { least = Math.abs(one - x); best = one; }
        });
        x = best;
      }
      if (x !== null) { show(Math.min(xs[xs.length - 1], Math.max(xs[0], x))); }
    });
    plot.addEventListener('pointerleave', hide);
    plot.addEventListener('blur', hide);
    plot.addEventListener('keydown', function (event) {
      var step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], k;
      if (event.key === 'Escape') { hide(); }
      if (!step) { return; }
      event.preventDefault();
      if (!lines.length) {
        var order = dots.filter(seen).sort(function (a, b) {
          return parseFloat(a.getAttribute('cx')) - parseFloat(b.getAttribute('cx'));
        });
        k = order.indexOf(now);
        if (order.length) {
          showDot(order[k < 0 ? 0 : Math.min(order.length - 1, Math.max(0, k + step))]);
        }
        return;
      }
      if (typeof now !== 'number') { return show(xs[step > 0 ? 0 : xs.length - 1]); }
      if (whole && logs.indexOf('x') < 0) {
        return show(Math.min(xs[xs.length - 1], Math.max(xs[0], now + step)));
      }
      k = xs.indexOf(now) + step;
      show(xs[Math.min(xs.length - 1, Math.max(0, k))]);
    });
  });
})();
