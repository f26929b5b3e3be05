/* main.c: of every unit test program that has none of its own. */
#include "unit.h"

int main(void) {
        return unit_run();
}
