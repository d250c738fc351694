"""Other memory managers behind one interface, fed the same atoms as ours (paper section 3.1.2).

They own their texts: a peer may rewrite or delete what it was given, so it keeps which facts each text came from, and
`eval.peers.coverage` says which of them the text still represents.
"""
