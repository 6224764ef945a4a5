(function () {
  document.querySelectorAll('#ID').forEach(function (box) {
    if (box.dataset.ready) { return; }
    box.dataset.ready = 'yes';
    var body = box.querySelector('tbody'), picked = {};
    var marks = Array.prototype.slice.call(box.querySelectorAll('[data-i]'));
    function light(i) {
      var some = i !== null || Object.keys(picked).length > 0;
      marks.forEach(function (mark) {
        var on = mark.dataset.i === i || mark.dataset.i in picked;
        mark.classList.toggle('on', on);
        mark.classList.toggle('off', some && !on);
      });
    }
    marks.forEach(function (mark) {
      mark.addEventListener('mouseenter', function () { light(mark.dataset.i); });
      mark.addEventListener('mouseleave', function () { light(null); });
      mark.addEventListener('focus', function () { light(mark.dataset.i); });
      mark.addEventListener('blur', function () { light(null); });
      mark.addEventListener('click', function () {
        if (!(mark.dataset.i in picked)) { picked[mark.dataset.i] = 1; }
        else { delete picked[mark.dataset.i]; }
        light(null);
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
