/* module.c - the _C module: the engine's functions for Python, against the limited API of 3.11.
 * SPDX-License-Identifier: Apache-2.0 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdio.h>
#include <string.h>

#include "cache_disk.h"
#include "engine.h"

static PyObject *out_of_memory;     /* torch.OutOfMemoryError, found at the first need */

static PyObject *exception_for(tpu_code code)
{
    switch (code) {
    case TPU_EXHAUSTED:
        if (!out_of_memory) {
            PyObject *torch = PyImport_ImportModule("torch");
            out_of_memory = torch ? PyObject_GetAttrString(torch, "OutOfMemoryError") : NULL;
            Py_XDECREF(torch);
            PyErr_Clear();
        }
        return out_of_memory ? out_of_memory : PyExc_MemoryError;
    case TPU_OUT_OF_RANGE: return PyExc_IndexError;
    case TPU_UNIMPLEMENTED: return PyExc_NotImplementedError;
    case TPU_CANCELLED: return PyExc_KeyboardInterrupt;
    default: return PyExc_RuntimeError;
    }
}

static PyObject *give(tpu_error *take_e)
{
    if (!take_e) Py_RETURN_NONE;
    PyErr_SetString(exception_for(tpu_error_code(take_e)), tpu_error_message(take_e));
    tpu_error_free(take_e);
    return NULL;
}

#define NAME(f) static PyObject *f(PyObject *self, PyObject *args)

NAME(configure)
{
    const char *candidates, *folder;
    if (!PyArg_ParseTuple(args, "ss", &candidates, &folder)) return NULL;
    engine_configure(candidates, folder);
    Py_RETURN_NONE;
}

NAME(start)
{
    tpu_error *e;
    Py_BEGIN_ALLOW_THREADS
    e = engine_start();
    Py_END_ALLOW_THREADS
    return give(e);
}

NAME(started) { return PyBool_FromLong(engine_started()); }
NAME(forked) { return PyBool_FromLong(engine_forked()); }

NAME(stop)
{
    Py_BEGIN_ALLOW_THREADS
    engine_stop();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

NAME(device_count)
{
    int n;
    Py_BEGIN_ALLOW_THREADS
    n = engine_device_count();
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(n);
}

NAME(current_device) { return PyLong_FromLong(engine_device()); }

static bool device_arg(PyObject *args, int *d) { return PyArg_ParseTuple(args, "i", d); }

NAME(set_device)
{
    int d;
    return device_arg(args, &d) ? PyLong_FromLong(engine_set_device(d)) : NULL;
}

NAME(device_name)
{
    int d;
    if (!device_arg(args, &d)) return NULL;
    tpu_error *e = engine_start();
    return e ? give(e) : PyUnicode_FromString(engine_device_name(d));
}

NAME(synchronize)
{
    int d;
    tpu_error *e;
    if (!device_arg(args, &d)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    e = engine_sync(d);
    Py_END_ALLOW_THREADS
    return give(e);
}

NAME(flush)
{
    int d;
    tpu_error *e;
    if (!device_arg(args, &d)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    e = engine_flush(d);
    Py_END_ALLOW_THREADS
    return give(e);
}

static const char *const modes[] = {"fused", "strict", "debug"};

NAME(get_mode) { return PyUnicode_FromString(modes[engine_get_mode()]); }

NAME(set_mode)
{
    const char *m;
    if (!PyArg_ParseTuple(args, "s", &m)) return NULL;
    for (int i = 0; i < 3; i++)
        if (!strcmp(m, modes[i])) {
            tpu_error *e;
            Py_BEGIN_ALLOW_THREADS
            e = engine_set_mode((engine_mode)i);
            Py_END_ALLOW_THREADS
            return give(e);
        }
    return PyErr_Format(PyExc_ValueError, "expected 'fused', 'strict' or 'debug', got '%s'", m);
}

NAME(memory_stats)
{
    int d;
    engine_memory m;
    if (!device_arg(args, &d)) return NULL;
    engine_memory_stats(d, &m);
    return Py_BuildValue("{sLsLsLsLsLsL}", "allocated", (long long)m.allocated, "peak", (long long)m.peak, "limit", (long long)m.limit, "live",
                         (long long)m.live, "allocs", (long long)m.allocs, "frees", (long long)m.frees);
}

NAME(memory_reset_peak)
{
    int d;
    if (!device_arg(args, &d)) return NULL;
    engine_memory_reset_peak(d);
    Py_RETURN_NONE;
}

NAME(memory_set_limit)
{
    int d;
    long long bytes;
    if (!PyArg_ParseTuple(args, "iL", &d, &bytes)) return NULL;
    engine_memory_set_limit(d, bytes);
    Py_RETURN_NONE;
}

NAME(memory_words)
{
    int d;
    if (!device_arg(args, &d)) return NULL;
    text t = {0};
    engine_memory_words(d, &t);
    PyObject *s = PyUnicode_FromString(t.at ? t.at : "");
    text_free(&t);
    return s;
}

NAME(stats)
{
    engine_stats s;
    Py_BEGIN_ALLOW_THREADS
    engine_get_stats(&s);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsKsKsKsd}", "calls", s.calls, "memo_misses", s.memo_misses, "programs", s.programs, "launches",
                         s.launches, "compiles", s.compiles, "disk_hits", s.disk_hits, "memory_hits", s.memory_hits, "disk_misses",
                         s.disk_misses, "merged", s.merged, "dropped", s.dropped, "uploads", s.uploads, "downloads", s.downloads,
                         "promotions", s.promotions, "compile_seconds", s.compile_seconds);
}

NAME(set_precision)
{
    const char *p;
    if (!PyArg_ParseTuple(args, "s", &p)) return NULL;
    engine_set_precision(!strcmp(p, "highest") ? HLO_HIGHEST : !strcmp(p, "high") ? HLO_HIGH : HLO_DEFAULT);
    Py_RETURN_NONE;
}

NAME(row_names)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && ops_at(i); i++) {
        PyObject *s = PyUnicode_FromString(ops_at(i)->name);
        if (!s || PyList_Append(list, s)) {
            Py_XDECREF(s);
            Py_DECREF(list);
            return NULL;
        }
        Py_DECREF(s);
    }
    return list;
}

NAME(program_text)
{
    unsigned long long i;
    const char *target;
    text t = {0};
    if (!PyArg_ParseTuple(args, "Ks", &i, &target)) return NULL;
    tpu_error *e = engine_program_text((size_t)i, strcmp(target, "tpu") ? HLO_CPU : HLO_TPU, &t);
    PyObject *s = e ? give(e) : t.len ? PyUnicode_FromStringAndSize(t.at, (Py_ssize_t)t.len) : Py_NewRef(Py_None);
    text_free(&t);
    return s;
}

NAME(plugin)
{
    return Py_BuildValue("{sssssisssO}", "path", engine_plugin_path(), "version", engine_plugin_version(), "api", engine_plugin_api(), "cache",
                         engine_cache_dir(), "tpu", engine_on_tpu() ? Py_True : Py_False);
}

#define ROW(f) {#f, f, METH_VARARGS, NULL}
/* ---- the cache's folder, with or without a device ---- */
NAME(cache_verify)
{
    const char *dir;
    int64_t good = 0;
    text bad = {0};
    if (!PyArg_ParseTuple(args, "s", &dir)) return NULL;
    tpu_error *e = folder_verify(dir, &good, &bad);
    PyObject *r = e ? give(e) : Py_BuildValue("Ls#", (long long)good, bad.at ? bad.at : "", (Py_ssize_t)bad.len);
    text_free(&bad);
    return r;
}

NAME(cache_prune)
{
    const char *dir;
    long long keep;
    if (!PyArg_ParseTuple(args, "sL", &dir, &keep)) return NULL;
    return PyLong_FromLongLong(folder_prune(dir, keep));
}

/* ---- the line of the user's program that is being executed ---- */
static bool inside(const char *file) { return strstr(file, "/torch/") || strstr(file, "/tputorch/"); }

static PyObject *attribute(PyObject *take_o, const char *name)
{
    PyObject *r = take_o ? PyObject_GetAttrString(take_o, name) : NULL;
    Py_XDECREF(take_o);
    return r;
}

static void place(char *out, size_t room)
{
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *trace, *frame = (PyObject *)PyEval_GetFrame();
    PyErr_Fetch(&type, &value, &trace);                 /* an exception on its way stays */
    Py_XINCREF(frame);
    snprintf(out, room, "a backward pass");
    while (frame && frame != Py_None) {
        PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame), *name = attribute(code, "co_filename");
        PyObject *bytes = name ? PyUnicode_EncodeFSDefault(name) : NULL;
        const char *file = bytes ? PyBytes_AsString(bytes) : NULL;
        if (file) snprintf(out, room, "%s:%d", file, PyFrame_GetLineNumber((PyFrameObject *)frame));
        bool found = file && !inside(file);
        Py_XDECREF(bytes);
        Py_XDECREF(name);
        if (found) break;
        frame = attribute(frame, "f_back");
    }
    Py_XDECREF(frame);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(state);
}

static PyMethodDef methods[] = {
    ROW(configure), ROW(start), ROW(started), ROW(forked), ROW(stop), ROW(device_count), ROW(current_device), ROW(set_device), ROW(device_name),
    ROW(synchronize), ROW(flush), ROW(get_mode), ROW(set_mode), ROW(memory_stats), ROW(memory_reset_peak), ROW(memory_set_limit),
    ROW(memory_words), ROW(stats), ROW(set_precision), ROW(row_names), ROW(program_text), ROW(plugin),
    ROW(cache_verify), ROW(cache_prune), {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", "tputorch's C core", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__C(void);
PyMODINIT_FUNC PyInit__C(void)
{
    place_set(place);
    return PyModule_Create(&module);
}
