"""Values of programs from files near them, from functions, branches and objects."""

from __future__ import annotations

from collections.abc import Mapping

from rows import each

from planner.documents.python_calls import UnknownValue, argument_defaults, parse_calls


def _value(text: str, files: Mapping[str, str] | None = None, **variables: str) -> object:
    """Return ``x`` of the one call of ``f`` in a program that has these files near it."""
    calls = parse_calls(text, "p.py", None, (files or {}).get, variables)
    (call,) = [call for call in calls if call.ends("f")]
    return call.keywords["x"]


SETTINGS = {"settings.py": "SIZE = 4\nNAMES = ['a']\ndef size(n=2):\n    return n * SIZE\n"}
YAML = {"conf/run.yaml": "train: {size: 3, name: a}\n"}
LOADED = "import yaml\nwith open('conf/run.yaml') as s:\n    c = yaml.safe_load(s)\n"


@each(
    ("text", "expected"),
    [
        ("from settings import *\nf(x=SIZE)", 4),
        ("from settings import SIZE as S\nf(x=S + 1)", 5),
        ("import settings as s\nf(x=s.SIZE)", 4),
        ("from . import settings\nf(x=settings.SIZE)", 4),
        ("from settings import size\nf(x=size(3))", 12),
        ("from settings import SIZE\np.add_argument('--n', default=SIZE)\nf(x=a.n)", 4),
    ],
)
def test_a_module_near_a_program_has_its_values(text: str, expected: object) -> None:
    assert _value(text, SETTINGS) == expected


@each(
    ("text", "expected"),
    [
        (f"{LOADED}f(x=c['train']['size'])", 3),
        (f"{LOADED}f(x=c['train'].get('other', 7))", 7),
        (f"{LOADED}t = c['train']\nf(**{{'x': t['name']}})", "a"),
        ("def load(p):\n    return yaml.safe_load(open(p))\n"
         "f(x=load('conf/run.yaml')['train']['size'])", 3),
        ("c = OmegaConf.load(Path(__file__).parent / 'conf' / 'run.yaml')\nf(x=c.train.size)", 3),
        ("@hydra.main(config_path='conf', config_name='run')\ndef g(c):\n    f(x=c.train.size)", 3),
    ],
)  # fmt: skip
def test_a_configuration_near_a_program_has_its_values(text: str, expected: object) -> None:
    assert _value(text, YAML) == expected


@each(
    ("text", "expected"),
    [
        ("def g():\n    return 1, 2\na, b = g()\nf(x=b)", 2),
        ("class C:\n    def __init__(self, n=5):\n        self.n = n\nf(x=C().n)", 5),
        ("class C:\n    def __init__(self, n):\n        self.n = n\n"
         "    def run(self):\n        f(x=self.n)\nC(8).run()", 8),
        ("@dataclass\nclass C:\n    n: list = field(default_factory=lambda: ['a'])\nf(x=C().n)",
         ["a"]),
        ("import torch\nif torch.cuda.is_available():\n    n = 1\nelse:\n    n = 2\nf(x=n)", 1),
        ("n = 1\nif 'a' == 'a':\n    n = 2\nf(x=n)", 2),
        ("try:\n    n = 1\nexcept ValueError:\n    n = 2\nf(x=n)", 1),
        ("f(x=True and 3 > 2)", True),
        ("@click.option('--n', default=6)\ndef g(n):\n    f(x=n)", 6),
        ("from absl import flags\nN = flags.DEFINE_integer('n', 6, 'help')\nf(x=N.value)", 6),
        ("def g(n: int = typer.Option(6)):\n    f(x=n)", 6),
        ("p.add_argument('--no-n', dest='n', action='store_false')\nf(x=a.n)", True),
        ("def g(c=None):\n    c = c or C(n=3)\n    f(x=c.n)", 3),
        ("def g(c=None):\n    if c is None:\n        c = C(n=3)\n    f(x=c.n)", 3),
        ("class C:\n    n: int = 4\ndef g(c: C):\n    f(x=c.n)", 4),
        ("def g(n):\n    f(x=n)\ng(5)\ng(5)", 5),
        ("def g(n):\n    return n + 1\na = g(1)\nb = g(2)\nf(x=b)", 3),
        ("def g(n):\n    n = int(n)\n    f(x=n)\ng('4')", 4),
        ("import json\nc = json.loads('{\"n\": 6}')\nf(x=c['n'])", 6),
        ("c = {}\nif True:\n    c['n'] = 6\nelse:\n    c['n'] = 7\nf(x=c['n'])", 6),
        ("import os\nif os.path.exists('absent.json'):\n    n = 1\nelse:\n    n = 2\nf(x=n)", 2),
        ("import os\nf(x=os.environ.get('SET'))", "here"),
        ("import os\nf(x=os.environ.get('OTHER'))", None),
    ],
)  # fmt: skip
def test_functions_objects_and_branches_have_values(text: str, expected: object) -> None:
    assert _value(text, SET="here") == expected


@each(
    "text",
    [
        "if g():\n    n = 1\nelse:\n    n = 2\nf(x=n)",
        "n = 1\nif g():\n    n = 2\nf(x=n)",
        "def g():\n    if h():\n        return 1\n    return 2\nf(x=g())",
        "def g():\n    return g()\nf(x=g())",
        "c = {}\nif g():\n    c['n'] = 6\nf(x=c['n'])",
        "def g(n):\n    f(x=n)\ng(5)\ng(6)",
        "c = {'n': 1}\nc['n'] = 2\nf(x=c['n'])",
        "from absent import n\nf(x=n)",
        "c = yaml.safe_load(open('absent.yaml'))\nf(x=c['n'])",
    ],
)
def test_what_depends_on_the_run_stays_open(text: str) -> None:
    assert isinstance(_value(text), UnknownValue)


def test_only_what_a_program_uses_of_a_module_is_called() -> None:
    module = "def used():\n    f(x=1)\ndef unused():\n    f(x=2)\n"
    files = {"parts.py": module}

    calls = parse_calls("import a\n\nfrom parts import used\nused()", "p.py", None, files.get)

    assert [(call.name, call.line, dict(call.keywords)) for call in calls if call.name == "f"] == [
        ("f", 3, {"x": 1})
    ]


def test_calls_of_branches_that_do_not_run_are_left_out() -> None:
    text = "p.add_argument('--on', action='store_true')\nif a.on:\n    f(x=1)\nelse:\n    f(x=2)"

    assert _value(text) == 2


def test_defaults_of_options_may_be_names() -> None:
    text = "N = 3\np.add_argument('--n', default=N)\np.add_argument('--m', default=g())"

    assert argument_defaults(text, "p.py") == {"n": 3}


def test_classes_of_the_program_are_told_from_those_of_libraries() -> None:
    text = (
        "from trl import SFTConfig as Base\nclass SFTConfig:\n    pass\n"
        "class Own(SFTConfig):\n    pass\nclass Other(Base):\n    pass\n"
        "SFTConfig(x=1)\nOwn(x=1)\nOther(x=1)\nBase(x=1)\n"
    )

    assert [call.is_of_program for call in parse_calls(text, "p.py")] == [True, True, False, False]


def test_packages_pass_on_what_their_modules_define() -> None:
    files = {
        "tools/__init__.py": "from .numbers import size\n",
        "tools/numbers.py": "from ..base import N\ndef size(n):\n    return n + N\n",
        "base.py": "N = 4\n",
    }

    assert _value("from tools import size\nf(x=size(1))", files) == 5


def test_branches_that_only_the_run_decides_are_marked() -> None:
    text = "f(x=1)\nif g():\n    f(x=2)\nif True:\n    f(x=3)"

    calls = [call for call in parse_calls(text, "p.py") if call.ends("f")]

    assert [call.is_sure for call in calls] == [True, False, True]
