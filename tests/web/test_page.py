"""The page in real Chromium."""

import re
from pathlib import Path

import pytest

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.web

TOKEN = "a-token-of-twenty-characters"
LONG = {"timeout": 180_000}


def begin(page, server, rig="simulated", **fields):
    page.goto(f"{server.address}/#/new")
    page.locator("option[value='system linear_pendulum']").wait_for(state="attached")
    page.locator("[name='theta gravity']").wait_for(state="attached", timeout=180_000)
    page.locator("[name=rig]").nth(0 if rig == "simulated" else 1).check()
    for name, value in fields.items():
        page.fill(f"[name={name}]", value)
    page.click("button:has-text('Begin')")
    expect(page.locator(".steer h1")).to_be_visible(**LONG)


def done(page):
    return page.locator(".figures b").first


def step(page):
    return int(re.match(r"\d+", done(page).inner_text())[0])


def test_fifty_steps_of_a_simulated_rig_with_a_reload_in_the_middle(page, serve):
    server = serve()
    begin(page, server, rate="10")
    expect(page.locator(".value").first).to_be_visible(**LONG)
    page.click("button:has-text('Play')")
    expect(done(page)).to_have_text(re.compile(r"^(1\d|2\d) of 50"), **LONG)
    page.reload()
    expect(done(page)).to_have_text("50 of 50", **LONG)
    expect(page.locator(".chip")).to_have_text("done", **LONG)
    expect(page.locator(".session")).to_contain_text("All 50 experiments are done")
    expect(page.locator(".parameter").first).to_contain_text("truth")
    seen = page.locator("figure", has_text="angle (rad)").first
    expect(seen.locator("circle.dot.ink")).to_have_count(51 + 1)  # and that of the legend
    assert "After 50 experiments angle is" in seen.locator("desc").text_content()
    seen.locator("svg[role=img]").focus()
    page.keyboard.press("ArrowLeft")
    expect(seen.locator("output")).to_contain_text("50:")
    with page.expect_download() as told:
        page.click("button:has-text('Record (CSV)')")
    rows = Path(told.value.path()).read_text().splitlines()
    assert rows[0] == "record,time,angle,velocity,torque"
    assert len(rows) == 52


def test_by_hand_with_bad_values_to_an_abort(page, serve):
    server = serve()
    begin(page, server, rig="outside", horizon="20")
    first = page.locator("button:has-text('Take as first measurement')")
    first.wait_for(timeout=180_000)
    page.fill("[name=y-angle]", "0.0")
    page.fill("[name=y-velocity]", "0,5")
    first.click()
    take = page.locator("button:has-text('Take as measurement 1')")
    take.wait_for(timeout=180_000)
    expect(page.locator("#y-velocity-hint")).to_contain_text("predicted")
    page.fill("[name=y-angle]", "one")
    take.click()
    problem = page.locator("#measure-problem")
    expect(problem).to_contain_text("“one” is no number")
    expect(page.locator("[name=y-angle]")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("[name=y-angle]")).to_be_focused()
    page.fill("[name=y-angle]", "1e8")
    take.click()
    expect(problem).to_contain_text("standard deviations from what was predicted", **LONG)
    assert step(page) == 0
    page.fill("[name=y-angle]", "0.02")
    page.fill("[name=y-velocity]", "0.45")
    page.keyboard.press("Enter")
    expect(done(page)).to_have_text("1 of 20", **LONG)
    expect(page.locator("h2", has_text="Design 2")).to_be_visible(**LONG)
    page.mouse.wheel(0, 2000)
    expect(page.locator("button.stop")).to_be_in_viewport()
    page.keyboard.press("Alt+a")
    expect(page.locator(".chip")).to_have_text("aborted", **LONG)
    expect(page.locator("h2", has_text="Rest design")).to_be_visible()
    expect(page.locator("button.stop")).to_be_disabled()
    expect(page.locator("[name=y-angle]")).to_be_hidden()


def test_the_server_killed_and_started_again_under_an_open_page(page, serve):
    server = serve()
    begin(page, server, rate="20", horizon="400")
    page.locator("button:has-text('Play')").click(timeout=180_000)
    expect(done(page)).to_have_text(re.compile(r"^[1-9]\d+ of 400"), **LONG)
    server.kill()
    expect(page.locator("#connection")).to_contain_text("No connection", **LONG)
    before = step(page)
    server.start()
    expect(page.locator("#connection")).to_have_text("Live", **LONG)
    expect(page.locator(".chip")).to_have_text("playing", **LONG)
    page.locator("button:has-text('Pause')").click()
    expect(page.locator(".chip")).to_have_text("waiting", **LONG)
    assert step(page) >= before
    count = page.locator("figure", has_text="angle (rad)").first.locator("circle.dot.ink").count()
    assert count >= before


def test_the_page_asks_for_the_token(page, serve):
    server = serve("--name", "localhost", environment={"NESTBED_TOKEN": TOKEN})
    page.goto(server.address)
    expect(page.locator("#door")).to_be_visible()
    page.fill("#token", "a-wrong-one-of-them")
    page.keyboard.press("Enter")
    expect(page.locator("#door-problem")).to_contain_text("not right", **LONG)
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("There is none yet", **LONG)
    assert TOKEN not in page.url
    assert TOKEN not in server.stop()


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, False), (390, True)])
def test_it_can_be_read(browser, serve, width, dark):
    """Nothing is wider than the screen; text stands out from what is behind it by 4.5 to 1."""
    server = serve()
    context = browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme="dark" if dark else "light", bypass_csp=True
    )
    page = context.new_page()
    page.set_default_timeout(180_000)
    begin(page, server, rate="50", horizon="10")
    page.click("button:has-text('Play')")
    expect(done(page)).to_have_text("10 of 10", **LONG)
    for path in ("", "new", "runs", page.url.partition("#/")[2]):
        page.goto(f"{server.address}/#/{path}")
        page.wait_for_timeout(800)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) == []


CONTRAST = """() => {
  const channel = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const numbers = (text) => { const m = text.match(/[\\d.]+/g).map(Number); return m.length === 3 ? [...m, 1] : m; };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = (e) => numbers(getComputedStyle(e).backgroundColor);
  const behind = (e) => (!e ? [255, 255, 255, 1] : ground(e)[3] > 0.99 ? ground(e) : behind(e.parentElement));
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    const apart = "svg, :disabled, dialog, [hidden], .skip, option, noscript, script";
    if (!own || e.closest(apart) || !e.getClientRects().length) continue;
    const [a, b] = [light(numbers(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push([e.className, e.textContent.slice(0, 40), (a + 0.05) / (b + 0.05)]);
  }
  return found;
}"""
