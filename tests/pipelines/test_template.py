"""The flex template's own parameters; launching it is tested with the other engines."""

from logloom.pipelines.template import parser


def test_flags_that_only_begin_as_the_template_s_own_are_beam_s():
    own, beams = parser().parse_known_args(["--recipe=a", "--to=b", "--ver=x", "--storage=y"])
    assert (own.recipe, own.to, own.verify) == ("a", "b", "all")
    assert beams == ["--ver=x", "--storage=y"]
