"""Streams into containers: bytes carried both ways between a client and a runtime.

`upgrade` takes over a client's connection, `upstream` dials the server behind, `splice` carries the
bytes as they are. What that server does not speak is translated: `spdy` is the wire of SPDY/3.1,
`spdy_connection` a client's connection of it, `websocket` the side of whoever serves a WebSocket;
`remote_command` translates between the two for exec and attach, `tunnel` carries SPDY inside a
WebSocket for port-forward.
"""
