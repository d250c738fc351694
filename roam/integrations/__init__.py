"""The store under the interfaces that other libraries define; each module needs the library that it is named after."""
