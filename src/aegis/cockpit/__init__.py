"""The cockpit: pages for signed-in people, rendered by the gateway itself.

Pages ask the same endpoints as programs do, with the person's principal, so that a page never shows or
changes what the API would refuse. Nothing is loaded from elsewhere, and no script or style is inline.
"""
