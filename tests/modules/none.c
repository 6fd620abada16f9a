// A shared object that is no module, for unit/test_module.
int none(void);
int none(void) { return 0; }
