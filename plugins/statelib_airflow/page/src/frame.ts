// What the page needs to know of the frame that Airflow shows it in. The frame is sandboxed: no window may be opened
// from it and `target="_top"` is refused; but it is of the same origin, so Airflow's own document can follow a link.

/** Airflow's window, if there is one and this page may look at it. */
export function airflowWindow(): Window | null {
  try {
    return window.top && window.top !== window && window.top.document ? window.top : null;
  } catch {
    return null;
  }
}

/** Follow the theme that the user chose in Airflow; alone in a window, that of the system. */
export function followTheme(): void {
  const outside = airflowWindow()?.document.documentElement;
  if (!outside) return;
  const apply = () => {
    const chosen = ["dark", "light"].find((name) => outside.classList.contains(name)) ?? outside.style.colorScheme;
    document.documentElement.dataset.theme = chosen === "dark" || chosen === "light" ? chosen : "";
  };
  apply();
  new MutationObserver(apply).observe(outside, { attributes: true, attributeFilter: ["class", "style"] });
}

/** Links with a target leave the frame: let Airflow's document follow them. */
export function leaveBy(event: MouseEvent): void {
  const outside = airflowWindow();
  const link = event.target instanceof Element ? event.target.closest<HTMLAnchorElement>("a[target]") : null;
  if (!outside || !link || event.defaultPrevented || event.button > 1) return;
  event.preventDefault();
  const apart = event.metaKey || event.ctrlKey || event.shiftKey || event.button === 1 || link.target === "_blank";
  follow(outside.document, link.href, apart);
}

function follow(outside: Document, href: string, apart: boolean): void {
  const link = outside.createElement("a");
  link.href = href;
  if (apart) {
    link.target = "_blank";
    link.rel = "noopener";
  }
  outside.body.append(link);
  link.click();
  link.remove();
}

/**
 * Keep Airflow's address at the place shown here, so that it can be copied and survives a reload: behind `plugin/<route>`
 * Airflow hands path and fragment to the frame. Tabs of a DAG or a run do not; their address stays.
 */
export function mirrorAddress(): void {
  const outside = airflowWindow();
  const prefix = window.location.pathname.replace(/[^/]+\/[^/]*$/, "");
  const shown = outside?.location.pathname ?? "";
  if (!outside || !shown.startsWith(`${prefix}plugin/`)) return;
  const route = shown.slice(`${prefix}plugin/`.length).split("/")[0];
  const place = `${prefix}plugin/${route}${window.location.pathname}${window.location.hash}`;
  outside.history.replaceState(outside.history.state, "", place);
}
