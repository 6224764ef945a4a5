(function () {
  document.querySelectorAll('#ID').forEach(function (box) {
    if (box.dataset.ready) { return; }
    box.dataset.ready = 'yes';
    var body = box.querySelector('tbody'), pinned = null;
    var marks = Array.prototype.slice.call(box.querySelectorAll('[data-i]'));
    function light(i) {
      marks.forEach(function (mark) {
        mark.classList.toggle('on', i !== null && mark.dataset.i === i);
        mark.classList.toggle('off', i !== null && mark.dataset.i !== i);
      });
    }
    marks.forEach(function (mark) {
      mark.addEventListener('mouseenter', function () { light(mark.dataset.i); });
      mark.addEventListener('mouseleave', function () { light(pinned); });
      mark.addEventListener('focus', function () { light(mark.dataset.i); });
      mark.addEventListener('blur', function () { light(pinned); });
      mark.addEventListener('click', function () {
        pinned = pinned === mark.dataset.i ? null : mark.dataset.i;
        light(pinned);
      });
    });
    box.querySelectorAll('th button').forEach(function (button, column) {
      button.addEventListener('click', function () {
        var head = button.parentElement;
        var down = head.getAttribute('aria-sort') === 'descending';
        box.querySelectorAll('thead th').forEach(function (one) {
          one.removeAttribute('aria-sort');
        });
        head.setAttribute('aria-sort', down ? 'ascending' : 'descending');
        var sign = down ? 1 : -1;
        Array.prototype.slice.call(body.rows).sort(function (a, b) {
          var x = a.cells[column].dataset.v, y = b.cells[column].dataset.v;
          if (x === undefined || y === undefined) { return (x === undefined) - (y === undefined); }
          var p = Number(x), q = Number(y);
          return sign * (isNaN(p) || isNaN(q) ? x.localeCompare(y) : p - q);
        }).forEach(function (row) { body.appendChild(row); });
      });
    });
  });
})();
