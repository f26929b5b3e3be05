"""Results as a table, JSON, CSV and a plot."""
import csv
import json
import os
import platform
import shutil
import subprocess
import time

# Published for pmxcfs (/etc/pve), KiB written to disk per replaced file (temporary file and rename): file size in KiB, then the file
# written by write(2) calls of 4 KiB, of 128 KiB, and by one call.
PUBLISHED = [(1, 48, 45, 41), (8, 121, 90, 89), (64, 1472, 826, 259), (128, 5585, 3765, 452), (256, 20424, 10743, 2351),
             (512, 86715, 43650, 3204), (1024, 369568, 187496, 15845)]


def number(value, digits=0):
    return '-' if value is None else '{:,.{}f}'.format(value, digits)


def size_name(size):
    if not size:
        return '-'
    for unit, name in ((1 << 20, 'MiB'), (1 << 10, 'KiB')):
        if size % unit == 0:
            return '%d %s' % (size // unit, name)
    return '%d B' % size


COLUMNS = (('what', 44), ('size', 8), ('updates', 8), ('bytes', 11), ('x', 8), ('flushes', 8), ('log', 9), ('content', 10), ('home', 8), ('rest', 8))


def header():
    return ' '.join(name.ljust(w) if i == 0 else name.rjust(w) for i, (name, w) in enumerate(COLUMNS))


def row(result):
    cells = [result['name'], size_name(result['size']), number(result['n']), number(result['bytes']), number(result['amplification'], 2),
             number(result['flushes'], 3), number(result['log']), number(result['content']), number(result['home']), number(result['rest'])]
    return ' '.join(c[:w].ljust(w) if i == 0 else c.rjust(w) for i, (c, (_, w)) in enumerate(zip(cells, COLUMNS)))


LEGEND = ('per update: bytes and flushes at the block device, final checkpoint charged; x: bytes per byte of content; log, content, home: what '
          'coteried wrote to each; rest: what the filesystem below added, by difference')


def write_files(directory, results, fs, level):
    os.makedirs(directory, exist_ok=True)
    meta = {'kernel': platform.release(), 'machine': platform.machine(), 'date': time.strftime('%Y-%m-%dT%H:%M:%S%z'), 'filesystem': fs, 'level': level,
            'method': 'sectors written x 512 at the loop device, from settled to after sync --checkpoint and syncfs'}
    with open(os.path.join(directory, 'amplification.json'), 'w') as f:
        json.dump({'meta': meta, 'results': results}, f, indent=1)
        f.write('\n')
    names = ['name', 'pattern', 'kind', 'spread', 'synced', 'level', 'fs', 'size', 'n', 'files', 'bytes', 'amplification', 'flushes', 'log', 'content',
             'home', 'rest', 'journal', 'operations', 'barriers', 'checkpoints', 'seconds']
    with open(os.path.join(directory, 'amplification.csv'), 'w', newline='') as f:
        out = csv.DictWriter(f, names, extrasaction='ignore')
        out.writeheader()
        out.writerows(results)


def plot(directory, results):
    """An SVG and a PNG beside the data; returns the path, or None without gnuplot or without a curve."""
    curves = {}
    for r in results:
        if r.get('pattern') == 'replace' and r.get('spread') == 'many' and not r.get('synced') and r.get('size'):
            curves.setdefault('Coterie, level %s, %s' % (r['level'], r['kind']), []).append((r['size'] / 1024, r['amplification']))
    curves = {title: points for title, points in curves.items() if len(points) > 1}
    if not curves or not shutil.which('gnuplot'):
        return None
    data = os.path.join(directory, 'amplification.dat')
    titles = []
    with open(data, 'w') as f:
        for title, points in sorted(curves.items()):
            titles.append((title, 'lw 3 pt 7'))
            f.write('\n'.join('%g %g' % p for p in sorted(points)) + '\n\n\n')
        for column, title in ((1, 'pmxcfs, published, 4 KiB writes'), (2, 'pmxcfs, published, 128 KiB writes'), (3, 'pmxcfs, published, one write')):
            titles.append((title, 'lw 1.5 dt 2 pt 6'))
            f.write('\n'.join('%g %g' % (p[0], p[column] / p[0]) for p in PUBLISHED) + '\n\n\n')
    curves_text = ', '.join('"%s" index %d with linespoints %s title "%s"' % (data, i, style, title) for i, (title, style) in enumerate(titles))
    for terminal, suffix in (('svg size 900,560 background "white"', 'svg'), ('png size 900,560', 'png')):
        script = ('set terminal %s; set output "%s"; set logscale xy; set xrange [0.1:1400]; set grid; set key outside bottom center horizontal maxcols 2;'
                  'set title "Bytes written to the block device per byte of a replaced file";'
                  'set xlabel "file size, KiB"; set ylabel "amplification"; set xtics ("128 B" 0.125, "1" 1, "4" 4, "16" 16, "64" 64, "256" 256, "1024" 1024);'
                  'plot 1 with lines lc "gray" title "1.0", %s') % (terminal, os.path.join(directory, 'amplification.' + suffix), curves_text)
        done = subprocess.run(['gnuplot', '-e', script], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            return None
    return os.path.join(directory, 'amplification.svg')
