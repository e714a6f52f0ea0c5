"""`python3 -m jobs …` in a checkout is `sublet …`: both packages are put on the path."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

if __name__ == "__main__":
    sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "functions")]
    from sublet.__main__ import main

    sys.exit(main())
