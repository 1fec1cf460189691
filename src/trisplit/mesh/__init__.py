"""More than one machine: links, stations, the plan, and the coordinator."""
