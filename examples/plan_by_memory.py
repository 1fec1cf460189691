"""Would a model fit these machines? python examples/plan_by_memory.py MODEL 40MB 60MB 200MB …"""

import sys
from pathlib import Path

from trisplit.errors import PlanProblem
from trisplit.mesh.costs import ends_bytes, stage_costs
from trisplit.mesh.plan import CUTS, Room, parse_size, plan
from trisplit.models.convert import DTYPES
from trisplit.models.model import open_model

model = open_model(Path(sys.argv[1]))
rooms = [Room(f"s{i}", parse_size(text)) for i, text in enumerate(sys.argv[2:], 1)]
for dtype in DTYPES:
    for cut in CUTS:
        try:
            drawn = plan(stage_costs(model, dtype, 1024), rooms, cut=cut, ends_bytes=ends_bytes(model, dtype))
        except PlanProblem as problem:
            print(f"{dtype} {cut}: {problem}\n")
        else:
            print(f"{dtype} {drawn.table()}\n")
