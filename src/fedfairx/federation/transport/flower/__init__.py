"""Messages carried by Flower, for organisations that run it already.

`pip install 'fedfairx[flower]'` goes into a separate environment, beside the agent's. `app/` is the Flower
app: it imports Flower and nothing of this package, and forwards envelopes between the endpoints that each
agent's service has for an engine (`EngineTransport`). `files.py` makes what a SuperLink and its SuperNodes
need, `launcher.py` starts all of it on one machine. Neither of these imports Flower.
"""
