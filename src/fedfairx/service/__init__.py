"""One agent as a service: decisions and rewards over HTTP, on disk before they are acknowledged.

`settings` are what can be set, `schemas` what goes over the wire, `write_queue` is the one place that changes
the agent, `decisions` has the tasks it runs, `routes/` maps paths to them, and `app` puts all together.
"""
