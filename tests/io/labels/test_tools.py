"""Files of labelling tools: what they say, what is left out, and what is refused."""

import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logloom.errors import DatasetError, LogloomError, UsageError
from logloom.io.labels import frame_names
from logloom.io.labels.frame_names import SentFrames, frame_name, key_of, parts_of
from logloom.io.labels.tools.coco import read_coco
from logloom.io.labels.tools.cvat import read_cvat
from logloom.io.labels.tools.image_labels import label_table
from logloom.io.labels.tools.kitti import read_kitti
from logloom.io.labels.tools.segments import read_segments
from logloom.pipelines.label.import_labels import import_labels

COCO = {
    "images": [{"id": 1, "file_name": "x/a@5.jpg", "width": 9}, {"id": 2, "file_name": "b@-6.png"}],
    "categories": [{"id": 7, "name": "car"}],
    "annotations": [
        {"image_id": 1, "category_id": 7, "bbox": [1, 2, 30, 40.5], "segmentation": [[1, 2, 3, 4, 5, 6]]},
        {"image_id": 2, "category_id": 7, "bbox": [0, 0, 1, 1], "score": 0.5, "track_id": 3},
        {
            "image_id": 2,
            "category_id": 7,
            "bbox": [0, 0, 1, 1],
            "segmentation": {"counts": "x", "size": [1, 1]},
        },
    ],
}
CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version><meta><task><name>t</name></task></meta>
<image id="0" name="a@5.jpg" width="9" height="9">
<box label="car" occluded="1" xtl="1.5" ytl="2" xbr="3" ybr="4" z_order="0">
<attribute name="colour">red &amp; blue</attribute></box>
<polygon label="road" points="0,0;10,0;10,5.5"/><tag label="rain"/><polyline label="lane" points="0,0;1,1"/>
</image><image id="1" name="empty@6.jpg"/>
<track id="4" label="bus"><box frame="0" outside="0" xtl="0" ytl="0" xbr="1" ybr="1"/>
<box frame="1" outside="1" xtl="0" ytl="0" xbr="1" ybr="1"/></track></annotations>
"""
KITTI = "Car 0.5 1 -1.57 10 20 30.5 40 1.5 1.6 3.9 1 2 30 -1.6\n\nVan 0 0 0 1 2 3 4 1 1 1 0 0 9 0 0.75\n"
SEGMENTS = {
    "name": "v1",
    "dataset": {
        "task_attributes": {"categories": [{"id": 1, "name": "car"}]},
        "samples": [
            {
                "name": "a@5.jpg",
                "labels": {
                    "ground-truth": {
                        "attributes": {
                            "annotations": [
                                {"id": 1, "category_id": 1, "type": "bbox", "points": [[1, 2], [3, 4]]},
                                {
                                    "id": 2,
                                    "category_id": 1,
                                    "type": "polygon",
                                    "points": [[0, 0], [4, 0], [4, 3]],
                                    "track_id": 9,
                                },
                                {"id": 3, "category_id": 1, "type": "polyline", "points": [[0, 0]]},
                            ]
                        }
                    },
                    "other": None,
                },
            }
        ],
    },
}
READERS = {
    "coco": (read_coco, json.dumps(COCO).encode()),
    "cvat": (read_cvat, CVAT.encode()),
    "kitti": (read_kitti, KITTI.encode()),
    "segments": (read_segments, json.dumps(SEGMENTS).encode()),
}


def test_boxes_polygons_and_scores_of_coco():
    found = read_coco(*READERS["coco"][1:], "f")
    first, second, mask = found.labels
    assert (first.image, first.name, first.box) == ("x/a@5.jpg", "car", (1, 2, 31, 42.5))
    assert first.polygon == (1, 2, 3, 4, 5, 6)
    assert (second.score, second.track) == (0.5, 3)
    assert mask.polygon == ()
    assert (found.images, found.skipped) == ({"x/a@5.jpg", "b@-6.png"}, {"mask": 1})


def test_shapes_tracks_and_attributes_of_cvat():
    found = read_cvat(CVAT.encode(), "f")
    box, polygon, tag, tracked = found.labels
    assert (box.name, box.box, box.image) == ("car", (1.5, 2, 3, 4), "a@5.jpg")
    assert box.attributes == {"occluded": True, "colour": "red & blue"}
    assert (polygon.box, polygon.polygon) == ((0, 0, 10, 5.5), (0, 0, 10, 0, 10, 5.5))
    assert (tag.name, tag.box) == ("rain", None)
    assert (tracked.image, tracked.name, tracked.track) == (0, "bus", 4)
    assert found.skipped == {"polyline": 1}
    assert "empty@6.jpg" in found.images


@pytest.mark.parametrize(
    ("degrees", "box"), [("90.0", (45, -45, 55, 55)), ("0.0", (0, 0, 100, 10)), ("270", (45, -45, 55, 55))]
)
def test_a_box_of_cvat_that_is_rotated_becomes_the_box_around_it(degrees, box):
    plain = 'xtl="1.5" ytl="2" xbr="3" ybr="4"'
    turned = f'xtl="0" ytl="0" xbr="100" ybr="10" rotation="{degrees}"'
    label = read_cvat(CVAT.replace(plain, turned, 1).encode(), "f").labels[0]
    assert label.box == pytest.approx(box)
    assert len(label.polygon) == (8 if float(degrees) else 0)


def test_the_corners_of_a_rotated_box_of_cvat_turn_clockwise_from_the_upper_left():
    turned = 'xtl="0" ytl="0" xbr="20" ybr="10" rotation="30"'
    label = read_cvat(CVAT.replace('xtl="1.5" ytl="2" xbr="3" ybr="4"', turned, 1).encode(), "f").labels[0]
    c, s = math.cos(math.radians(30)), math.sin(math.radians(30))
    corners = [(10 + c * x - s * y, 5 + s * x + c * y) for x, y in ((-10, -5), (10, -5), (10, 5), (-10, 5))]
    assert label.polygon == pytest.approx([number for corner in corners for number in corner])


def test_what_coco_leaves_null_is_absent_and_a_polygon_has_a_box_around_it():
    label = {"image_id": 1, "category_id": 7, "segmentation": [[1, 2, 3, 4, 5, 0]]}
    nulls = dict.fromkeys(("bbox", "score", "track_id", "attributes"))
    (found,) = read_coco(json.dumps({**COCO, "annotations": [{**label, **nulls}]}).encode(), "f").labels
    assert (found.box, found.track, found.attributes) == ((1, 0, 5, 4), -1, {})
    assert math.isnan(found.score)


@pytest.mark.parametrize(
    ("key", "again", "said"),
    [
        ("images", {"id": 1, "file_name": "c@7.jpg"}, "'x/a@5.jpg' and 'c@7.jpg' of images have one id, 1"),
        ("categories", {"id": 7, "name": "bus"}, "'car' and 'bus' of categories have one id, 7"),
    ],
)
def test_ids_of_coco_that_stand_there_twice_are_refused(key, again, said):
    with pytest.raises(DatasetError, match=said):
        read_coco(json.dumps({**COCO, key: [*COCO[key], again]}).encode(), "f")


def test_text_that_the_parser_gives_in_many_pieces_is_whole():
    text = "&amp;x" * 3000
    found = read_cvat(CVAT.replace("red &amp; blue", text).encode(), "f")
    assert found.labels[0].attributes["colour"] == "&x" * 3000


@pytest.mark.parametrize("encoding", ["no-such", "shift_jis", "utf-8"])
def test_an_encoding_that_xml_claims_is_not_looked_up(encoding):
    assert len(read_cvat(CVAT.replace("utf-8", encoding, 1).encode(), "f").labels) == 4


def test_boxes_in_three_dimensions_of_kitti():
    car, van = read_kitti(KITTI.encode(), "a@5").labels
    assert (car.name, car.box) == ("Car", (10, 20, 30.5, 40))
    assert car.numbers["location"] == (1, 2, 30)
    assert car.numbers["rotation_y"] == (-1.6,)
    assert math.isnan(car.score)
    assert van.score == 0.75


def test_vector_labels_of_segments():
    found = read_segments(*READERS["segments"][1:], "f")
    box, polygon = found.labels
    assert (box.box, polygon.box, polygon.track) == ((1, 2, 3, 4), (0, 0, 4, 3), 9)
    assert found.skipped == {"polyline": 1}


def segments(**labels):
    """A release of one sample with these label sets."""
    said = json.loads(json.dumps(SEGMENTS))
    said["dataset"]["samples"][0]["labels"] = labels
    return json.dumps(said).encode()


def test_one_label_set_of_segments_is_taken():
    shapes = SEGMENTS["dataset"]["samples"][0]["labels"]["ground-truth"]["attributes"]["annotations"]
    sets = {"ground-truth": {"attributes": {"annotations": shapes[:1]}}}
    sets["model"] = {"attributes": {"annotations": shapes[1:2]}}
    assert [label.track for label in read_segments(segments(**sets), "f").labels] == [-1]
    assert [label.track for label in read_segments(segments(**sets), "f", "model").labels] == [9]
    with pytest.raises(DatasetError, match=r"no label set 'mine'; there are 'ground-truth', 'model'"):
        read_segments(segments(**sets), "f", "mine")


@pytest.mark.parametrize(
    ("status", "is_taken"), [(None, True), ("REVIEWED", True), ("REJECTED", False), ("PRELABELED", False)]
)
def test_labels_of_segments_that_nobody_stands_by_are_counted(status, is_taken):
    label = {**SEGMENTS["dataset"]["samples"][0]["labels"]["ground-truth"], "label_status": status}
    found = read_segments(segments(**{"ground-truth": label}), "f")
    assert len(found.labels) == 2 * is_taken
    assert +found.skipped == ({"polyline": 1} if is_taken else {status.lower(): 3})


def test_frames_of_a_sequence_of_segments_are_counted():
    label = {"label_status": "LABELED", "attributes": {"frames": [{"annotations": []}, {"annotations": []}]}}
    found = read_segments(segments(**{"ground-truth": label}), "f")
    assert (found.labels, found.skipped) == ([], {"frame of a sequence": 2})


@pytest.mark.parametrize("tool", READERS)
def test_wherever_a_file_is_cut_it_is_an_error_that_names_it_or_whole_lines(tool):
    read, data = READERS[tool]
    whole = len(read(data, "f").labels)
    for stop in range(0, len(data) - 2, 3):
        try:
            found = read(data[:stop], "the file")
        except DatasetError as error:
            assert str(error).startswith("the file")  # noqa: PT017
        else:
            assert tool == "kitti"
            assert len(found.labels) <= whole


@given(tool=st.sampled_from(list(READERS)), at=st.integers(0, 3000), byte=st.integers(0, 255))
def test_a_damaged_file_is_read_or_an_error_of_ours(tool, at, byte):
    read, data = READERS[tool]
    damaged = bytearray(data)
    damaged[at % len(data)] = byte
    try:
        found = read(bytes(damaged), "the file")
        label_table((("log", 5), label) for label in found.labels)
    except DatasetError as error:
        assert "the file" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "declared",
    [
        '<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;">]>',
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE a SYSTEM "http://127.0.0.1/x.dtd">',
    ],
)
def test_xml_that_declares_entities_is_refused_before_any_is_read(declared):
    with pytest.raises(DatasetError, match="declares a document type"):
        read_cvat(f"<?xml version='1.0'?>{declared}<annotations>&c;&x;</annotations>".encode(), "f")


@pytest.mark.parametrize(
    ("tool", "old", "new", "said"),
    [
        ("coco", '"image_id": 1', '"image_id": 99', "annotation 0 is of an image"),
        ("coco", '"category_id": 7', '"category_id": 8', "annotation 0 is of an category"),
        ("coco", "40.5", "NaN", "NaN"),
        ("coco", '"bbox": [1, 2, 30, 40.5]', '"bbox": [1, 2]', "bbox"),
        ("cvat", 'xtl="1.5"', 'xtl="nan"', "line 4: xtl is 'nan'"),
        ("cvat", 'xtl="1.5"', "", "lacks xtl"),
        ("cvat", "10,5.5", "10", "not x,y;x,y"),
        ("cvat", "<annotations>", "<svg>", "<svg>"),
        ("cvat", "<version>1.1", "<version>\x01", "not readable XML"),
        ("kitti", "Car 0.5", "Car", "line 1"),
        ("kitti", "-1.6", "inf", "line 1"),
        ("segments", '"category_id": 1', '"category_id": 5', "no category 5"),
        ("segments", "[[1, 2], [3, 4]]", "[]", "without points"),
        ("segments", "[[1, 2], [3, 4]]", "[[1, 2, 3]]", "sample 'a@5.jpg'"),
    ],
)
def test_what_makes_no_sense_is_named_with_its_place(tool, old, new, said):
    read, data = READERS[tool]
    text = data.decode()
    assert old in text
    changed = text.replace(old, new, 1)
    changed = changed.replace("</annotations>", "</svg>") if new == "<svg>" else changed
    with pytest.raises(DatasetError) as caught:
        read(changed.encode(), "f")
    assert said in str(caught.value)


@given(st.text(min_size=1, max_size=40), st.integers(-(2**62), 2**62))
def test_a_name_carries_its_key_there_and_back(log_id, timestamp):
    try:
        name = frame_name(log_id, timestamp)
    except (UsageError, UnicodeEncodeError):
        return
    assert not set(name) & set('/\\:*?"<>|\0 ')
    assert key_of(name) == (log_id, timestamp)
    assert key_of(parts_of(f"task 7/sub.dir/{name}.jpg", "f")[-1]) == (log_id, timestamp)


@pytest.mark.parametrize(
    "name", ["../a@5.jpg", "/a@5.jpg", "x/../a@5.jpg", "..\\a@5.jpg", "C:\\a@5.jpg", "a\0@5"]
)
def test_names_that_leave_their_folder_are_refused(tmp_path, name):
    (tmp_path / "c.json").write_text(json.dumps(COCO).replace("x/a@5.jpg", json.dumps(name)[1:-1]))
    with pytest.raises(DatasetError, match="outside the folder"):
        import_labels([str(tmp_path / "c.json")], "coco", str(tmp_path / "out.parquet"))
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("name", ["a.jpg", "a@x.jpg", "@5.jpg", "a@99999999999999999999.jpg", "a b@5"])
def test_names_without_a_key_have_none(name):
    assert key_of(parts_of(name, "f")[-1]) is None


def test_what_a_tool_says_becomes_a_table_by_log_and_time(tmp_path):
    for name, (_, data) in READERS.items():
        (tmp_path / f"{name}.txt").write_bytes(data)
    to = tmp_path / "labels" / "coco.parquet"
    done = import_labels([str(tmp_path / "coco.txt")], "coco", str(to))
    assert (done.labels, done.images, done.labelled, done.skipped) == (3, 2, 2, {"mask": 1})
    table = pq.read_table(to)
    assert table["log_id"].to_pylist() == ["a", "b", "b"]
    assert table["timestamp"].to_pylist() == [5, -6, -6]
    assert table["bbox"].to_pylist()[0] == [1, 2, 31, 42.5]
    first = to.read_bytes()
    import_labels([str(tmp_path / "coco.txt")], "coco", str(to))
    assert to.read_bytes() == first
    (tmp_path / "a@5.txt").write_text(KITTI)
    import_labels([str(tmp_path / "a@5.txt")], "kitti", str(to))
    assert pq.read_table(to)["dimensions"].to_pylist()[0] == pytest.approx([1.5, 1.6, 3.9])
    assert [p.name for p in to.parent.iterdir()] == ["coco.parquet"]


def test_frames_that_a_tool_numbers_or_names_anew_are_told_by_the_table_of_keys(tmp_path):
    keys = {"file": ["z@9.jpg", "renamed.jpg"], "log_id": ["z", "a"], "timestamp": [9, 5]}
    pq.write_table(pa.table(keys), tmp_path / "keys.parquet")
    sent = SentFrames.load(str(tmp_path / "keys.parquet"))
    assert sent.find("folder/renamed.png", "f") == ("a", 5)
    assert [sent.find(number, "f") for number in (0, 1, 2)] == [("a", 5), ("z", 9), None]
    (tmp_path / "c.xml").write_text(CVAT)
    to = str(tmp_path / "out.parquet")
    done = import_labels([str(tmp_path / "c.xml")], "cvat", to, keys=str(tmp_path / "keys.parquet"))
    assert (done.labels, done.num_unknown) == (4, 0)
    without = import_labels([str(tmp_path / "c.xml")], "cvat", to)
    assert (without.labels, without.unknown, without.num_unknown) == (3, ("0",), 1)


def test_frames_of_several_folders_keep_their_keys(tmp_path):
    files = ["front/000.jpg", "rear/000.jpg", "rear/left/000.jpg", "rear/111.jpg"]
    keys = {"file": files, "log_id": ["a", "b", "b", "b"], "timestamp": [1, 1, 2, 1]}
    pq.write_table(pa.table(keys), tmp_path / "keys.parquet")
    sent = SentFrames.load(str(tmp_path / "keys.parquet"))
    for name, key in [
        ("front/000.jpg", ("a", 1)),
        ("task 7/rear/000.png", ("b", 1)),
        ("left/000.jpg", ("b", 2)),
        ("elsewhere/111.jpg", ("b", 1)),
    ]:
        assert sent.find(name, "f") == key
    for name in ("000.jpg", "other/000.jpg"):
        with pytest.raises(UsageError, match=rf"f: image '{name}' may be 'front/000' or 'rear/000'"):
            sent.find(name, "f")
    assert sent.frames == [("a", 1), ("b", 1), ("b", 1), ("b", 2)]
    twice = {"file": ["a.jpg", "a.png"], "log_id": ["a", "b"], "timestamp": [1, 1]}
    pq.write_table(pa.table(twice), tmp_path / "twice.parquet")
    with pytest.raises(UsageError, match=r"twice.parquet: 'a.png', without its suffix, .* two keys"):
        SentFrames.load(str(tmp_path / "twice.parquet"))


def test_the_table_of_keys_may_lie_in_a_store_that_wants_options(tmp_path, monkeypatch):
    pq.write_table(
        pa.table({"file": ["a.jpg"], "log_id": ["a"], "timestamp": [5]}), tmp_path / "keys.parquet"
    )
    seen = []
    plain = frame_names.LabelTable
    monkeypatch.setattr(frame_names, "LabelTable", lambda *said: seen.append(said[2]) or plain(*said))
    (tmp_path / "c.json").write_text(json.dumps(COCO))
    options, to = {"file": {"auto_mkdir": False}}, str(tmp_path / "out.parquet")
    keys = str(tmp_path / "keys.parquet")
    import_labels([str(tmp_path / "c.json")], "coco", to, keys=keys, storage_options=options)
    assert seen == [options]


def test_a_file_of_kitti_without_a_suffix_is_of_the_image_of_its_name(tmp_path):
    for name in ("a@5", "drive.1@6"):
        (tmp_path / name).write_text(KITTI)
        import_labels([str(tmp_path / name)], "kitti", str(tmp_path / "out.parquet"))
        found = pq.read_table(tmp_path / "out.parquet")
        assert f"{found['log_id'][0]}@{found['timestamp'][0]}" == name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"name": "car"', '"name": "\\ud800"'),
        ('"track_id": 3', '"track_id": 18446744073709551615'),
        ('"track_id": 3', '"attributes": {"a": 1e400}'),
        ("[1, 2, 30, 40.5]", "[1e308, 0, 1e308, 1]"),
        ("[[1, 2, 3, 4, 5, 6]]", "[[1e300, 2, 3, 4, 5, 6]]"),
        ('"score": 0.5', '"score": 1e300'),
    ],
)
def test_what_no_table_holds_is_an_error_that_names_the_file(tmp_path, old, new):
    text = json.dumps(COCO)
    assert old in text
    (tmp_path / "c.json").write_text(text.replace(old, new))
    with pytest.raises(DatasetError, match=r"c\.json"):
        import_labels([str(tmp_path / "c.json")], "coco", str(tmp_path / "out.parquet"))


def test_labels_of_images_that_nobody_knows_are_an_error_with_the_way_out(tmp_path):
    (tmp_path / "c.xml").write_text(CVAT.replace("@", "-"))
    with pytest.raises(UsageError, match=r"keys\.parquet"):
        import_labels([str(tmp_path / "c.xml")], "cvat", str(tmp_path / "out.parquet"))
    for files, tool, to in [
        (["none"], "coco", "x.parquet"),
        (["c"], "via", "x.parquet"),
        (["c"], "coco", "x.csv"),
    ]:
        with pytest.raises(LogloomError):
            import_labels(files, tool, str(tmp_path / to))
