"""Word that leaves the deployment: an outbox in the store, senders that retry, and a table of what nobody took.

A message is written in the transaction of what it tells, so that a crash loses neither; it is sent at least
once, by whichever process gets to it, and carries an identifier by which its receiver knows a repetition.
"""
