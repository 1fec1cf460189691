"""Would a model fit these machines? python examples/plan_by_memory.py MODEL 40MB 60MB 200MB …"""

import sys
from pathlib import Path

from trisplit.errors import PlanProblem
from trisplit.mesh.costs import plan_model
from trisplit.mesh.cuts import CUTS
from trisplit.mesh.room import Room, parse_size
from trisplit.models.convert import DTYPES
from trisplit.models.model import open_model

model = open_model(Path(sys.argv[1]))
rooms = [Room(f"s{i}", parse_size(text)) for i, text in enumerate(sys.argv[2:], 1)]
for dtype in DTYPES:
    for cut in CUTS:
        try:
            drawn = plan_model(model, rooms, cut=cut, dtype=dtype, context=1024)
        except PlanProblem as problem:
            print(f"{dtype} {cut}: {problem}\n")
        else:
            print(f"{dtype} {drawn.table()}\n")
