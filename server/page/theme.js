// Runs before anything is drawn, so that the page does not flash in the other theme. The choice is
// "auto" (as the system), "light" or "dark"; <html data-theme> is what it comes to.
(() => {
    const PLACE = "prevue.theme", system = matchMedia("(prefers-color-scheme: dark)");
    let choice = "auto";
    try {
        choice = localStorage.getItem(PLACE) || "auto";
    } catch { /* storage is off: the system's theme */ }
    const apply = () => {
        document.documentElement.dataset.theme = choice === "auto" ? (system.matches ? "dark" : "light") : choice;
    };
    system.addEventListener("change", apply);
    window.prevueTheme = {
        get: () => choice,
        set(name) {
            choice = name;
            try {
                localStorage.setItem(PLACE, name);
            } catch { /* for this visit only */ }
            apply();
        },
    };
    apply();
})();
