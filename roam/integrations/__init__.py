"""The store under the interfaces that other libraries define. Each module needs its library; importing this does not."""
