"""What the READMEs show of the C++ client builds as it stands, without a warning."""

import re
import subprocess
from pathlib import Path

from tests.cpp.building import CPP, INCLUDES, ROOT, STRICT, compiler

# What the text takes for granted: the reader's own.
READERS = "int complain(const char* error);\nvoid act(const float* y);\n"


def examples(readme: Path) -> list[str]:
    found: list[str] = re.findall(r"^```cpp\n(.*?)^```", readme.read_text(), re.M | re.S)
    return found


def test_the_examples_build(tmp_path: Path) -> None:
    connects, feed = examples(CPP / "README.md")
    (short,) = examples(ROOT / "README.md")
    include, _, connects = connects.partition("\n")
    lob = "const tickpath::Model* const lob = mlp;\n"
    program = tmp_path / "examples.cpp"
    program.write_text(f"{include}\n{READERS}int run() {{\n{connects}{{ {short} }}\n{lob}{feed}return 0;\n}}\n")
    command = [compiler(), *STRICT, *INCLUDES, "-fsyntax-only", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
