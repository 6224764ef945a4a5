// A click on a heading sorts its table by that column, numbers by their size.
function value(row, column) {
  const text = row.cells[column].textContent.trim();
  const number = parseFloat(text.replace(/,/g, ""));
  return { text: text, number: number, isMissing: text === "-" || text === "" };
}

document.addEventListener("DOMContentLoaded", function () {
  document.querySelectorAll("table.sortable").forEach(function (table) {
    const body = table.tBodies[0];
    table.querySelectorAll("thead th").forEach(function (head, column) {
      head.tabIndex = 0;
      head.style.cursor = "pointer";
      function sort() {
        const isDown = head.getAttribute("aria-sort") === "descending";
        table.querySelectorAll("thead th").forEach(function (each) {
          each.removeAttribute("aria-sort");
        });
        head.setAttribute("aria-sort", isDown ? "ascending" : "descending");
        const sign = isDown ? 1 : -1;
        Array.from(body.rows).sort(function (first, second) {
          const a = value(first, column), b = value(second, column);
          if (a.isMissing || b.isMissing) { return a.isMissing - b.isMissing; }
          const areWords = isNaN(a.number) || isNaN(b.number);
          return sign * (areWords ? a.text.localeCompare(b.text) : a.number - b.number);
        }).forEach(function (row) { body.appendChild(row); });
      }
      head.addEventListener("click", sort);
      head.addEventListener("keydown", function (event) {
        if (event.key === "Enter") { sort(); }
      });
    });
  });
});
