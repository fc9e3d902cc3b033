"""One agent as a service: decisions and rewards over HTTP, on disk before they are acknowledged.

`settings` says what can be set, `schemas` what goes over the wire, `desk` who may touch the agent and when,
`steps` what is done there, `routes/` which address means which step, and `app` puts them together.
"""
