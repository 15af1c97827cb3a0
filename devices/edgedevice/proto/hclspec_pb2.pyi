from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Spec(_message.Message):
    __slots__ = ("object", "attr", "default", "literal")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ATTR_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    LITERAL_FIELD_NUMBER: _ClassVar[int]
    object: Object
    attr: Attr
    default: Default
    literal: Literal
    def __init__(self, object: _Optional[_Union[Object, _Mapping]] = ..., attr: _Optional[_Union[Attr, _Mapping]] = ..., default: _Optional[_Union[Default, _Mapping]] = ..., literal: _Optional[_Union[Literal, _Mapping]] = ...) -> None: ...

class Attr(_message.Message):
    __slots__ = ("name", "type", "required")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    required: bool
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., required: _Optional[bool] = ...) -> None: ...

class Object(_message.Message):
    __slots__ = ("attributes",)
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Spec
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Spec, _Mapping]] = ...) -> None: ...
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    attributes: _containers.MessageMap[str, Spec]
    def __init__(self, attributes: _Optional[_Mapping[str, Spec]] = ...) -> None: ...

class Default(_message.Message):
    __slots__ = ("primary", "default")
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    primary: Spec
    default: Spec
    def __init__(self, primary: _Optional[_Union[Spec, _Mapping]] = ..., default: _Optional[_Union[Spec, _Mapping]] = ...) -> None: ...

class Literal(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: str
    def __init__(self, value: _Optional[str] = ...) -> None: ...
