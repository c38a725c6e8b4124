"""Each kind of container, each form of layout."""

import pytest

from tools.merge import FileMerge, merge_file

PATH = "m.py"


def outcome(base: str, patched: str, target: str) -> FileMerge:
    return merge_file(PATH, base.encode(), patched.encode(), target.encode())


def merged(base: str, patched: str, target: str) -> str:
    done = outcome(base, patched, target)
    assert not done.conflicts, list(map(str, done.conflicts))
    return done.files[PATH].decode()


def refused(base: str, patched: str, target: str) -> str:
    done = outcome(base, patched, target)
    assert not done.files
    return "; ".join(map(str, done.conflicts))


@pytest.mark.parametrize(
    ("base", "patched", "target", "want"),
    [
        pytest.param(
            "x = f(a, key=1)\n", "x = f(a, key=1, new=2)\n", "x = f(a, key=1, other=3)\n",
            "x = f(a, key=1, new=2, other=3)\n", id="keyword-argument",
        ),
        pytest.param(
            "def f(a, b=1):\n    pass\n", "def f(a, b=1, new=2):\n    pass\n",
            "def f(a, b: int = 1, *, c=3):\n    pass\n",
            "def f(a, b: int = 1, new=2, *, c=3):\n    pass\n", id="parameter",
        ),
        pytest.param(
            "from m import a, c\n", "from m import a, b, c\n", "from m import (\n    a,\n    c,\n"
            "    d,\n)\n", "from m import (\n    a,\n    b,\n    c,\n    d,\n)\n",
            id="import-that-got-parentheses",
        ),
        pytest.param(
            "from m import (\n    a,\n    c,\n)\n", "from m import (\n    a,\n    b,\n    c,\n)\n",
            "from m import a, c, d\n", "from m import a, b, c, d\n", id="import-on-one-line",
        ),
        pytest.param(
            "s = {1, 2}\n", "s = {1, 9, 2}\n", "s = {1, 2, 3}\n", "s = {1, 9, 2, 3}\n", id="set",
        ),
        pytest.param(
            "T = Literal['a', 'b']\n", "T = Literal['a', 'n', 'b']\n",
            'T = Literal[\n    "a",\n    "b",\n    "z",\n]\n',
            'T = Literal[\n    "a",\n    \'n\',\n    "b",\n    "z",\n]\n',
            id="literal-with-other-quotes-and-layout",
        ),
        pytest.param(
            "x: Literal['a', 'b'] = 'a'\n", "x: Literal['a', 'n', 'b'] = 'a'\n",
            "x: Literal['a', 'b', 'z'] = 'b'\n", "x: Literal['a', 'n', 'b', 'z'] = 'b'\n",
            id="literal-in-an-annotation",
        ),
        pytest.param(
            "@a\n@b\ndef f():\n    return 1\n", "@a\n@n\n@b\ndef f():\n    return 1\n",
            "@a\n@b\n@z\ndef f():\n    return 2\n", "@a\n@n\n@b\n@z\ndef f():\n    return 2\n",
            id="decorator",
        ),
        pytest.param(
            "if a:\n    x()\nelif b:\n    y()\n",
            "if a:\n    x()\nelif n:\n    z()\nelif b:\n    y()\n",
            "if a:\n    x(1)\nelif b:\n    y()\nelse:\n    w()\n",
            "if a:\n    x(1)\nelif n:\n    z()\nelif b:\n    y()\nelse:\n    w()\n", id="elif",
        ),
        pytest.param(
            "m = ('one '\n     'two')\n", "m = ('one '\n     'new '\n     'two')\n",
            "m = ('one '\n     'two '\n     'three')\n",
            "m = ('one ' 'new '\n     'two '\n     'three')\n", id="strings-side-by-side",
        ),
        pytest.param(
            "x = [\n    1,\n    2\n]\n", "x = [\n    1,\n    2,\n    9\n]\n",
            "x = [\n    0,\n    1,\n    2\n]\n", "x = [\n    0,\n    1,\n    2,\n    9\n]\n",
            id="no-trailing-comma",
        ),
        pytest.param(
            "x = [\n    1,  # one\n    2,  # two\n]\n",
            "x = [\n    1,  # one\n    2,  # two\n    9,  # nine\n]\n",
            "x = [\n    1,  # one\n    2,  # two\n    3,  # three\n]\n",
            "x = [\n    1,  # one\n    2,  # two\n    9,  # nine\n    3,  # three\n]\n",
            id="comments-behind-entries",
        ),
        pytest.param(
            "x = [\n    # first\n    1,\n]\n", "x = [\n    # first\n    1,\n    # new\n    9,\n]\n",
            "x = [\n    # first\n    1,\n    3,\n]\n",
            "x = [\n    # first\n    1,\n    # new\n    9,\n    3,\n]\n", id="comment-before-entry",
        ),
        pytest.param(
            "x = ()\n", "x = (1,)\n", "y = 2\nx = ()\n", "y = 2\nx = (1,)\n", id="empty-tuple",
        ),
        pytest.param(
            "x = {'k': [1, 2], 'l': 3}\n", "x = {'k': [1, 9, 2], 'l': 3}\n",
            "x = {'k': [1, 2, 3], 'l': 4}\n", "x = {'k': [1, 9, 2, 3], 'l': 4}\n", id="nested",
        ),
        pytest.param(
            "class A:\n    x = 1\n", "class A:\n    x = 1\n    n = 9\n",
            "class A:\n    x = 1\n    y = 2\n", "class A:\n    x = 1\n    n = 9\n    y = 2\n",
            id="class-body",
        ),
        pytest.param(
            "match x:\n    case 1:\n        a()\n",
            "match x:\n    case 1:\n        a()\n    case 2:\n        n()\n",
            "match x:\n    case 1:\n        a(3)\n    case _:\n        z()\n",
            "match x:\n    case 1:\n        a(3)\n    case 2:\n        n()\n"
            "    case _:\n        z()\n",
            id="match-case",
        ),
        pytest.param(
            "try:\n    a()\nexcept E:\n    b()\n",
            "try:\n    a()\nexcept N:\n    n()\nexcept E:\n    b()\n",
            "try:\n    a(1)\nexcept E:\n    b(2)\n",
            "try:\n    a(1)\nexcept N:\n    n()\nexcept E:\n    b(2)\n", id="except-clause",
        ),
        pytest.param(
            "class A(B):\n    x = 1\n", "class A(B, N):\n    x = 1\n", "class A(B):\n    x = 2\n",
            "class A(B, N):\n    x = 2\n", id="base-class",
        ),
        pytest.param(
            "def f():\n    a()\n    b()\n", "def f():\n    a()\n    b(1)\n",
            "def f():\n    a(2)\n    b()\n", "def f():\n    a(2)\n    b(1)\n",
            id="adjoining-lines",
        ),
        pytest.param(
            "x = f(a, 1)\n", "x = g(a, 1)\n", "x = f(a, 2)\n", "x = g(a, 2)\n",
            id="parts-of-a-call",
        ),
        pytest.param(
            "x.y = t.c.a\n", "x.y = t.c.b\n", "x.y = (\n    t.c.a\n)\nz = 1\n",
            "x.y = (\n    t.c.b\n)\nz = 1\n", id="parentheses-around-a-long-line",
        ),
        pytest.param(
            "f('a',\n  b, c)\n", "f(b, c)\n", "f('a',\n  b, d)\n", "f(b, d)\n",
            id="delete-the-first-argument-of-a-wrapped-call",
        ),
        pytest.param(
            "x = [1, 2, 3]\n", "x = [1, 3]\n", "x = [0, 1, 2, 3]\n", "x = [0, 1, 3]\n",
            id="delete-an-entry",
        ),
        pytest.param(
            "x = [\n    1,\n    2,\n    3,\n]\n", "x = [\n    1,\n    3,\n]\n",
            "x = [1, 2, 3, 4]\n", "x = [1, 3, 4]\n", id="delete-an-entry-in-another-layout",
        ),
        pytest.param(
            "class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n",
            "class A:\n    def f(self):\n        return 1\n",
            "class A:\n    def f(self):\n        return 0\n\n    def g(self):\n        return 2\n",
            "class A:\n    def f(self):\n        return 0\n", id="delete-a-method",
        ),
        pytest.param(
            "def f():\n    x = 1  # why\n    return x\n",
            "def f():\n    x = 1  # because\n    return x\n",
            "def f():\n    x = 2  # why\n    return x\n",
            "def f():\n    x = 2  # because\n    return x\n",
            id="comment-behind-a-statement",
        ),
        pytest.param(
            "a = 1\r\nx = [\r\n    1,\r\n]\r\n", "a = 1\r\nx = [\r\n    1,\r\n    9,\r\n]\r\n",
            "a = 1\nx = [\n    1,\n    3,\n]\n", "a = 1\nx = [\n    1,\n    9,\n    3,\n]\n",
            id="the-targets-line-ends",
        ),
    ],
)  # fmt: skip
def test_container(base: str, patched: str, target: str, want: str) -> None:
    assert merged(base, patched, target) == want
    assert merged(base, base, target) == target
    assert merged(base, patched, base) == patched
    again = outcome(base, patched, want)
    assert again.files == {PATH: want.encode()}
    assert all(edit.present for edit in again.edits)


def test_inserted_code_takes_the_indentation_of_the_target_but_strings_keep_theirs() -> None:
    base = "def f():\n    first(1, 2, 3)\n    last(1, 2, 3)\n"
    new = '    if new:\n        text = """\n    kept\n"""\n        call(\n'
    new += "            text,\n        )\n"
    patched = base.replace("    last", new + "    last")
    target = base.replace("def f():\n", "def f():\n    with lock:\n").replace(
        "    first", " " * 8 + "first"
    )
    target = target.replace("    last", " " * 8 + "last")
    want = (
        '        if new:\n            text = """\n    kept\n"""\n            call(\n'
        "                text,\n            )\n"
    )
    assert merged(base, patched, target) == target.replace("        last", want + "        last")


def test_method_renamed_as_a_whole_is_followed_and_said() -> None:
    body = "".join(f"        step_{k}(x)\n" for k in range(8))
    base = f"class A:\n    def old(self, x):\n{body}"
    patched = base.replace("step_3(x)", "step_3(x, 9)")
    target = base.replace("def old", "def renamed").replace("step_4(x)", "step_4(x, 1)")
    done = outcome(base, patched, target)
    assert done.files[PATH].decode() == target.replace("step_3(x)", "step_3(x, 9)")
    (edit,) = done.edits
    assert (edit.written.qualname, edit.landed.qualname) == ("A.old", "A.renamed")


def test_method_deleted_by_the_patch_and_renamed_upstream_is_refused() -> None:
    body = "".join(f"        step_{k}(x)\n" for k in range(8))
    base = f"class A:\n    y = 1\n\n    def old(self, x):\n{body}"
    target = base.replace("def old", "def renamed")
    assert "moved in the target" in refused(base, "class A:\n    y = 1\n", target)


@pytest.mark.parametrize(
    ("base", "patched", "target", "reason"),
    [
        ("x = 1\n", "x = 2\n", "x = 3\n", "changed differently on both sides"),
        ("x = f(a)\n", "x = f(n, a)\n", "x = f(z, a)\n", "which comes first is open"),
        (
            "def f():\n    go(1)\n    stop(1)\n", "def f():\n    go(1)\n",
            "def f():\n    go(1)\n    stop(2)\n", "deleted by the patch, changed in the target",
        ),
        (
            "def f():\n    a(1)\n    b(1)\n", "def f():\n    a(1)\n    new()\n    b(1)\n",
            "def f():\n    other()\n", "no neighbour of the insertion is left",
        ),
        ("import os\nx = 1\n", "import os\nx = 1\ndef n():\n    return 1\n",
         "import os\nx = 1\ndef n():\n    return 2\n", "added differently on both sides"),
        ("def f():\n    a(1, 2)\n    b()\n", "def f():\n    b()\n",
         "def f():\n    if c:\n        a(1, 2)\n    b()\n", "nothing would be left of its block"),
        ("x = [\n    1,\n]\n", "x = [\n    1,\n    # why\n    2,\n]\n", "x = [1, 3]\n",
         "a comment cannot be written into a list on one line"),
        ("class A:\n    def f(self):\n        return 1\n",
         "class A:\n    def f(self):\n        return 2\n",
         "class B:\n    y = 1\n", "no counterpart"),
    ],
)  # fmt: skip
def test_refused(base: str, patched: str, target: str, reason: str) -> None:
    text = refused(base, patched, target)
    assert reason in text
    assert f"{PATH}:" in text


def test_entry_is_not_doubled_by_a_clean_text_merge() -> None:
    entries = "".join(f'    "e{k}",\n' for k in range(9))
    base = f"x = [\n{entries}]\n"
    patched = base.replace('    "e7",\n', '    "e7",\n    "new",\n')
    target = base.replace('    "e1",\n', '    "e1",\n    "new",\n')
    assert merged(base, patched, target) == target


def test_import_that_upstream_has_on_another_line_is_not_doubled() -> None:
    base = "import os\n\n\n\nx = 1\n"
    patched = "import os\nfrom m import new\n\n\n\nx = 1\n"
    target = "import os\n\n\n\nx = 1\nfrom m import new, other\n"
    assert outcome(base, patched, target).conflicts


def test_only_the_changed_span_is_rewritten() -> None:
    odd = "y = [ 1,2 ,\n  3]   # odd\n"
    base = odd + "x = [\n  'a',\n  'b',\n]\n"
    patched = base.replace("  'a',\n", "  'a',\n  'n',\n")
    target = odd + "x = [ 'a' ,'b', 'c' ]\n"
    assert merged(base, patched, target) == odd + "x = [ 'a', 'n' ,'b', 'c' ]\n"


def test_layout_alone_in_conflict_with_another_layout_is_said() -> None:
    reason = refused("x = [1, 2]\n", "x = [\n    1,\n    2,\n]\n", "x = [1,\n     2]\n")
    assert "only the layout changes" in reason
