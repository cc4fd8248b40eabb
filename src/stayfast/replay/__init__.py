"""The pure replay engine that both ``plan`` and ``simulate`` stand on: traces, policies, replay, optimum, intervals."""
