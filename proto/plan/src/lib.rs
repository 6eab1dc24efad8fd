//! What one node must have: its plan, the entries it is made of, their hashes, and how changes apply.
