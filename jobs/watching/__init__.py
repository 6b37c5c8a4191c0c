"""How a run is watched: its stages, as lines, bars or JSON, its logs and its figures."""
