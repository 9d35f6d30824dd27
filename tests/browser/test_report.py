"""The page of `logloom report`, as a browser shows it."""

import io
import json

import PIL.Image
import pytest

from logloom.io.catalog.manifest import open_root
from logloom.io.storage.store import Store
from logloom.pipelines.report.page import page_of
from logloom.pipelines.report.report import report_of
from logloom.pipelines.stats.stats import column_statistics
from logloom.recipe import Recipe
from tests.browser.looks import image_widths, serious_findings, unfold, width_of
from tests.pipelines.conftest import build_at, built  # noqa: F401  # a fixture
from tests.pipelines.conftest import long_drive as drive  # noqa: F401  # a fixture
from tests.transforms.ros2_logs import COMPRESSED, SPEED, header, speeds, write_log

HACK = "window.hacked=1"
HOSTILE = f"</script><script>{HACK}</script><img src=x onerror={HACK}>\u202e\x1b[31m"


def write_page(root, folder):
    path = folder / "page.html"
    path.write_bytes(page_of(report_of(*open_root(Store.at(str(root))))))
    return path


@pytest.fixture(scope="module")
def page(built, tmp_path_factory):  # noqa: F811
    """The page of the demo's drives."""
    return write_page(built, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The page of a version of many splits, two logs and a parent, all of whose names are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (64, 48), "teal").save(buffer, "PNG")
    for number in range(2):
        said = speeds()
        for _, message in said:
            message["note"] = HOSTILE
        pictures = [
            (time, {"header": header(time), "format": HOSTILE, "data": buffer.getvalue()})
            for time, _ in said[number::2]  # so that they are no duplicates
        ]
        topics = {f"/{HOSTILE}": (SPEED, said), "/cam": (COMPRESSED, pictures)}
        name = f"{number}\"'><img src=x onerror={HACK}>.mcap"
        write_log(folder / "logs" / name, topics)
        recipe = Recipe(
            name="hostile",
            logs=[str(folder / "logs" / "*.mcap")],
            clock={"rate": 10},
            columns={
                "speed": {"topic": f"/{HOSTILE}", "field": "speed", "resample": "linear", "unit": "m s-1"},
                "note": {"topic": f"/{HOSTILE}", "field": "note", "resample": "nearest"},
                "cam": {"topic": "/cam", "field": "data", "resample": "nearest", "tolerance": "20ms"},
            },
            outputs={"tar": {}, "table": {}},
            split={"train": 0.5, "val": 0.5},
        )
        build_at(recipe, folder / "root")
    return write_page(folder / "root", folder)


@pytest.fixture(params=["page", "hostile"])
def any_page(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("dark", [False, True])
def test_a_page_says_nothing_on_the_console_asks_for_nothing_and_shows_its_images(any_page, dark, open_page):
    opened = open_page(any_page, dark=dark)
    images = image_widths(opened.page)
    assert len(images) > 4
    assert min(images) > 10
    assert (opened.said, opened.asked) == ([], [])


def test_hostile_names_run_no_script_and_are_shown_as_text(hostile, open_page):
    opened = open_page(hostile, bypass=True)  # by escaping alone, without the page's policy
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.locator("script").count() == 1
    assert "<img src=x onerror=" in opened.page.inner_text("body")
    assert "\u202e" not in opened.page.content()
    assert (opened.said, opened.asked) == ([], [])


def test_the_policy_of_a_page_lets_no_other_script_run(page, tmp_path, open_page):
    broken = tmp_path / "broken.html"
    injected = f"<script>{HACK}</script><img src=x onerror={HACK}><style>body{{display:none}}</style></main>"
    broken.write_bytes(page.read_bytes().replace(b"</main>", injected.encode()))
    opened = open_page(broken)
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.locator("h1").is_visible()


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (360, False)])
def test_axe_finds_nothing_serious(any_page, width, dark, open_page):
    page = open_page(any_page, width=width, dark=dark, bypass=True).page
    unfold(page)
    assert serious_findings(page) == []


@pytest.mark.parametrize("width", [360, 768])
def test_a_page_needs_no_scrolling_sideways(any_page, width, open_page):
    page = open_page(any_page, width=width).page
    assert width_of(page) <= width
    unfold(page)
    assert width_of(page) <= width


def test_the_slider_goes_through_the_samples_by_keyboard(page, open_page):
    page = open_page(page).page
    shown = page.locator(".sample:visible")
    first = shown.inner_text()
    page.locator("#slider").focus()
    page.keyboard.press("ArrowRight")
    assert shown.count() == 1
    assert shown.inner_text() != first
    assert page.locator("#number").inner_text() == "2 of 24"
    page.keyboard.press("Home")
    assert shown.inner_text() == first
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_bins_of_a_histogram_are_told_by_keyboard(page, built, open_page):  # noqa: F811
    page = open_page(page).page
    chart = page.locator("article[aria-label='Column ego.speed'] .bars").first
    chart.focus()
    page.keyboard.press("ArrowRight")
    said = column_statistics(str(built)).columns()["ego.speed"]["histogram"]
    low, high = (f"{edge:.6g}" for edge in said["edges"][:2])
    told = page.locator("article[aria-label='Column ego.speed'] .ends").first.inner_text()
    assert told == f"{low} to {high} m s-1: {said['counts'][0]}"


def test_the_numbers_of_a_page_are_those_of_stats(page, built, open_page):  # noqa: F811
    page = open_page(page).page
    columns = column_statistics(str(built)).columns()
    speed = columns["ego.speed"]
    cells = page.locator("article[aria-label='Column ego.speed'] table.numbers tbody td").all_text_contents()
    quantiles = [speed["quantiles"][key] for key in ("1", "10", "50", "90", "99")]
    numbers = [speed["min"], *quantiles, speed["max"], speed["mean"], speed["std"]]
    assert cells == [f"{speed['count']:,}", *(f"{number:.6g}" for number in numbers)]
    rows = page.locator("article[aria-label='Column imu'] table.numbers tbody tr")
    assert rows.count() == len(columns["imu"]["mean"]) + 1  # and the lengths
    means = [row.locator("td").nth(8).text_content() for row in rows.all()]
    assert means[:-1] == [f"{number:.6g}" for number in columns["imu"]["mean"]]


def test_a_split_can_be_chosen(hostile, open_page):
    page = open_page(hostile).page
    name = json.loads(page.evaluate("JSON.stringify(document.getElementById('split').options[1].value)"))
    whole = page.locator(
        "article[aria-label='Column speed'] table.numbers:visible, .lanes li:visible"
    ).count()
    page.select_option("#split", name)
    assert page.locator(f".lanes li:visible:not([data-in='{name}'])").count() == 0
    assert page.locator(".lanes li:visible").count() < whole
    assert page.locator("[data-of='']:visible").count() == 0
    assert page.locator(f"[data-of='{name}']:visible").count() > 0


def test_a_split_of_single_rows_can_be_chosen(drive, tmp_path, open_page):  # noqa: F811
    head = drive.text[: drive.text.index("columns:")]
    columns = "columns:\n  ego.speed: {topic: /odom, field: twist.twist.linear.x}\n"
    split = "split: {train: 0.5, val: 0.5, by: time, cell: 500ms}\n"
    build_at(Recipe.from_yaml(f"{head}{columns}outputs: {{tar: {{}}}}\n{split}"), tmp_path / "root")
    page = open_page(write_page(tmp_path / "root", tmp_path)).page
    every = page.locator(".sample").count()
    lanes = page.locator(".lanes li").count()
    counts = []
    for name in ("train", "val"):
        page.select_option("#split", name)
        assert page.locator(".lanes li:visible").count() == lanes  # each log has rows of both
        assert page.locator(".sample.on").get_attribute("data-split") == name
        counts.append(int(page.text_content("#number").split()[-1]))
        stats = column_statistics(str(tmp_path / "root"), split=name).columns()["ego.speed"]
        numbers = page.locator("article[aria-label='Column ego.speed'] div:visible td").first
        assert numbers.text_content() == f"{stats['count']:,}"
    assert sum(counts) == every
    assert min(counts) > 0
