#include "machine.h"
void catchup_begin(struct repl *r){(void)r;}
void catchup_stop(struct repl *r,bool k){(void)r;(void)k;}
void catchup_give(struct repl *r,size_t f,const void*b,size_t l){(void)r;(void)f;(void)b;(void)l;}
void catchup_check(struct repl *r){(void)r;}
void catchup_replaced(struct repl *r){(void)r;}
bool catchup_owes(const struct repl *r,size_t m){(void)r;(void)m;return false;}
void donor_ask(struct repl *r,size_t f,const void*b,size_t l){(void)r;(void)f;(void)b;(void)l;}
void donor_log_part(struct repl *r,const struct repl_event*e){(void)r;(void)e;}
void donor_pump(struct repl *r){(void)r;}
void donor_stop(struct repl *r){(void)r;}
